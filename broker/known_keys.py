"""Every key of RocketMQ's broker outside its store, with type and default.

Read out of the setters and fresh instances of
BrokerConfig and AuthConfig
of RocketMQ 5.5.0, and of FiltersrvConfig of 4.2.0; keys that 4.x and 5.0 to 5.3 had besides are
under `[gone]`, our own under `[trocket]`. The sections say
what it means that trocket does not support a key (`EFFECTS` in common/known_keys.py); whether it
does, the dataclass says. Format: `parse_known_keys`.
"""

from __future__ import annotations

BROKER_KEYS = """\
[cold]
cgColdReadThreshold long 3145728
coldCtrStrategyEnable bool false
globalColdReadThreshold long 104857600
usePIDColdCtrStrategy bool true
[delay]
allowRecallWhenBrokerNotWriteable bool true
delayOffsetUpdateVersionStep long 200
recallMessageEnable bool false
[discovery]
compressedRegister bool false
enableRegisterProducer bool true
enableSingleTopicRegister bool false
enableSplitMetadata bool true
enableSplitRegistration bool false
fetchNameSrvAddrByDnsLookup! bool false
fetchNamesrvAddrByAddressServer! bool false
fetchNamesrvAddrInterval long 10000
forceRegister bool true
registerBrokerTimeoutMills int 24000
splitMetadataSize int 2000
splitRegistrationSize int 800
updateNameServerAddrPeriod int 120000
[filters]
clientUploadFilterClassEnable bool true
compressMsgBodyOverHowmuch int 8192
enableCalcFilterBitMap bool false
enablePropertyFilter bool false
expectConsumerNumUseFilter int 32
filterClassRepertoryUrl str -
filterDataCleanTimeSpan long 86400000
filterServerNums int 0
filterSupportRetry bool false
maxErrorRateOfBloomFilter int 20
zipCompressLevel int 5
[lite]
enableLiteEventMode bool true
enableLmqStats bool false
liteEventCheckInterval long 10000
liteEventFullDispatchDelayTime long 10000
liteEventFullDispatchDelayTimeForWildcardGroup long 10000
liteLagCountMetricsEnable bool false
liteLagLatencyCollectEnable bool false
liteLagLatencyMetricsEnable bool false
liteLagLatencyTopK int 50
litePullMessageEnable bool true
litePullMessageThreadPoolNums int (16 + 2 cpus)
litePullThreadPoolQueueCapacity int 100000
liteSubscriptionCheckInterval long 120000
liteSubscriptionCheckTimeoutMills long 180000
liteTtlCheckInterval long 120000
maxClientEventCount int 100
maxLiteSubscriptionCount long 100000
minLiteTTl long 900000
waitTimeMillsInLitePullQueue long 5000
[metrics]
accountStatsEnable bool true
accountStatsPrintZeroValues bool true
autoDeleteUnusedStats bool true
commercialBaseCount int 1
commercialSizePerMsg int 4096
enableConnectionMetrics bool true
enableDetailStat bool true
enableLagAndDlqMetrics bool true
enableMessageStoreMetrics bool true
enableRemotingMetrics bool true
enableRequestMetrics bool true
enableStatsMetrics bool true
estimateAccumulation bool true
isolateLogEnable bool false
maxStatsIdleTimeInMinutes int -1
metricGrpcExporterIntervalInMills long 60000
metricGrpcExporterTimeOutInMills long 3000
metricLoggingExporterIntervalInMills long 10000
metricsExportBatchMaxDataPoints int 1000
metricsExporterType enum DISABLE
metricsGrpcExporterHeader str -
metricsGrpcExporterTarget str -
metricsInDelta bool false
metricsLabel str -
metricsOtelCardinalityLimit int 50000
metricsPromExporterHost str -
metricsPromExporterPort int 5557
msgTraceTopicName! str RMQ_SYS_TRACE_TOPIC
printChannelGroups bool false
printChannelGroupsMinNum int 5
traceTopicEnable! bool false
[netty]
enableNetWorkFlowControl bool false
[other]
autoCreateSubscriptionGroup! bool true
autoCreateTopicEnable! bool true
broadcastOffsetExpireMaxSecond long 300
broadcastOffsetExpireSecond long 120
brokerClusterName! str DefaultCluster
brokerConfigPath str -
brokerIP1! str (first address)
brokerId! long 0
brokerName! str (host name)
brokerPermission int 6
brokerTopicEnable bool true
channelExpiredTimeout long 120000
cleanOfflineBrokerInterval int 30000
clearRetryTopicWhenDeleteTopic bool true
clusterTopicEnable bool true
configBlackList str configBlackList;brokerConfigPath
consumerFallbehindThreshold long 17179869184
consumerOffsetUpdateVersionStep long 500
defaultTopicQueueNums int 8
disableConsumeIfConsumerReadSlowly bool false
enableBroadcastOffsetStore bool true
enableCreateSysGroup bool true
enableMixedMessageType bool false
flushConsumerOffsetHistoryInterval int 60000
flushConsumerOffsetInterval int 5000
forwardTimeout long 3000
inBrokerContainer bool false
listenPort! int 10911
longPollingEnable bool true
messageStorePlugIn str -
namesrvAddr! str $NAMESRV_ADDR
notifyConsumerIdsChangedEnable bool true
persistConsumerOffsetIncrementally bool false
realTimeNotifyConsumerChange bool true
regionId str DefaultRegion
registerNameServerPeriod int 30000
rejectPullConsumerEnable bool false
rocketmqHome str $ROCKETMQ_HOME
shortPollingTimeMills long 1000
storeReplyMessageEnable bool true
subscriptionExpiredTimeout long 600000
traceOn bool true
useServerSideResetOffset bool true
useStaticSubscription bool false
validateSystemTopicWhenUpdateTopic bool true
[pop]
ackMessageThreadPoolNums int 16
ackThreadPoolQueueCapacity int 100000
appendAckAsync bool false
appendCkAsync bool false
defaultMessageRequestMode enum PULL
defaultPopShareQueueNum int -1
enableLitePopLog bool false
enableNotifyAfterPopOrderLockRelease bool true
enableNotifyBeforePopCalculateLag bool true
enablePopBatchAck bool false
enablePopBufferMerge bool false
enablePopLog bool false
enablePopMessageThreshold bool false
enablePopMetrics bool true
enableRetryTopicV2 bool false
enableSkipLongAwaitingAck bool false
initPopOffsetByCheckMsgInMem bool true
loadBalancePollNameServerInterval long 30000
loadBalanceProcessorThreadPoolNums int 32
loadBalanceThreadPoolQueueCapacity int 100000
maxMessageFilterNumForNotification int 64
maxPopPollingSize long 100000
popCkMaxBufferSize int 200000
popCkOffsetMaxQueueSize int 20000
popCkStayBufferTime int 10000
popCkStayBufferTimeOut int 3000
popConsumerFSServiceInit bool true
popConsumerKVServiceEnable bool false
popConsumerKVServiceInit bool false
popConsumerKVServiceLog bool false
popFromRetryProbability int 20
popFromRetryProbabilityForPriority int 0
popInflightMessageThreshold long 10000
popLongPollingForceNotifyInterval long 800
popPollingMapExpireTimeSeconds int 600
popPollingMapSize int 100000
popPollingSize int 1024
popResponseReturnActualRetryTopic bool false
popReviveConcurrency int 32
popReviveMaxAttemptTimes int 16
popReviveMaxReturnSizePerRead int 16384
popReviveSkipIfGroupAbsent bool true
priorityOrderAsc bool true
retrieveMessageFromPopRetryTopicV1 bool true
reviveAckWaitMs long 180000
reviveInterval long 1000
reviveMaxSlow long 3
reviveQueueNum int 8
reviveScanTime long 10000
serverLoadBalancerEnable bool true
skipWhenCKRePutReachMaxTimes bool false
useMessageFilterForNotification bool true
useSeparateRetryQueue bool false
waitTimeMillsInAckQueue long 3000
[replication]
brokerElectionPriority int 2147483647
brokerHeartbeatInterval int 1000
brokerIP2 str (first address)
brokerNotActiveTimeoutMillis long 10000
checkSyncStateSetPeriod long 5000
compatibleWithOldNameSrv bool true
controllerAddr str -
controllerHeartBeatTimeoutMills long 10000
enableControllerMode bool false
enableRemoteEscape bool false
enableSlaveActingMaster bool false
fetchControllerAddrByDnsLookup bool false
lockInStrictMode bool false
sendHeartbeatTimeoutMillis int 1000
skipPreOnline bool false
slaveReadEnable bool false
syncBrokerMemberGroupPeriod int 1000
syncBrokerMetadataPeriod long 5000
syncControllerMetadataPeriod long 10000
[rocksdb]
configManagerVersion str v1
transactionCheckRocksdbCoreThreads int 2
transactionCheckRocksdbMaxThreads int 5
transactionCheckRocksdbQueueCapacity int 2000
useSingleRocksDBForAllConfigs bool false
[security]
aclCacheExpiredSecond int 600
aclCacheMaxNum int 1000
aclCacheRefreshSecond int 60
aclEnable! bool false
authConfigPath str -
authenticationEnabled bool false
authenticationMetadataProvider str -
authenticationProvider str -
authenticationStrategy str -
authenticationWhitelist str -
authorizationEnabled bool false
authorizationMetadataProvider str -
authorizationProvider str -
authorizationStrategy str -
authorizationWhitelist str -
clusterName str -
configName str -
initAuthenticationUser str -
innerClientAuthenticationCredentials str -
migrateAuthFromV1Enabled bool false
statefulAuthenticationCacheExpiredSecond int 60
statefulAuthenticationCacheMaxNum int 10000
statefulAuthorizationCacheExpiredSecond int 60
statefulAuthorizationCacheMaxNum int 10000
userCacheExpiredSecond int 600
userCacheMaxNum int 1000
userCacheRefreshSecond int 60
[threads]
adminBrokerThreadPoolNums int 16
adminBrokerThreadPoolQueueCapacity int 10000
asyncSendEnable bool true
brokerFastFailureEnable bool true
clientManageThreadPoolNums int 32
clientManagerThreadPoolQueueCapacity int 1000000
consumerManageThreadPoolNums int 32
consumerManagerThreadPoolQueueCapacity int 1000000
enableFastChannelEventProcess bool false
heartbeatThreadPoolNums int (cpus, max 32)
heartbeatThreadPoolQueueCapacity int 50000
highSpeedMode bool false
processReplyMessageThreadPoolNums int (16 + 2 cpus)
pullMessageThreadPoolNums int (16 + 2 cpus)
pullThreadPoolQueueCapacity int 100000
putMessageFutureThreadPoolNums int (cpus, max 4)
putThreadPoolQueueCapacity int 10000
queryMessageThreadPoolNums int (8 + cpus)
queryThreadPoolQueueCapacity int 20000
recoverConcurrently! bool false
recoverThreadPoolNums int 32
replyThreadPoolQueueCapacity int 10000
sendMessageThreadPoolNums int (cpus, max 4)
sendThreadPoolQueueCapacity int 10000
startAcceptSendRequestTimeStamp long 0
transferMsgByHeap bool true
waitTimeMillsInAdminBrokerQueue long 5000
waitTimeMillsInHeartbeatQueue long 31000
waitTimeMillsInPullQueue long 5000
waitTimeMillsInSendQueue long 200
[transactions]
enableTransactionMetrics bool true
endTransactionPoolQueueCapacity int 100000
endTransactionThreadPoolNums int (8 + 2 cpus)
rejectTransactionMessage! bool false
transactionCheckInterval! long 30000
transactionCheckMax! int 15
transactionMetricFlushInterval long 10000
transactionOpBatchInterval int 3000
transactionOpMsgMaxSize int 4096
transactionTimeOut! long 6000
waitTimeMillsInTransactionQueue long 3000
[gone]
checkTransactionMessageEnable bool false
commercialBigCount int 1
commercialEnable bool true
commercialTimerCount int 1
commercialTransCount int 1
defaultReadQueueNums int 8
defaultWriteQueueNums int 8
rmqAddressServerDomain str jmenv.tbsite.net
rmqAddressServerSubGroup str nsaddr
[trocket]
filterBatchTimeoutMillis int 1000
filterClassesFile str -
filterStrikesMax int 3
filterUploadGroups str -
filterWorkerMemoryMax int 128
javaFilterEnable bool false
pythonFilterEnable bool false
remotingBytesMax int -
slaveSyncInterval int 10000
"""
