"""Every key of RocketMQ's store, with type and default.

Read out of the setters and fresh instances of
both MessageStoreConfig
of RocketMQ 5.5.0; keys that 4.x and 5.0 to 5.3 had besides are under `[gone]`, our own under
`[trocket]`. The sections say
what it means that trocket does not support a key (`EFFECTS` in common/known_keys.py); whether it
does, the dataclass says. Format: `parse_known_keys`.
"""

from __future__ import annotations

STORE_KEYS = """\
[batch]
autoMessageVersionOnTopicLen bool true
bitMapLengthConsumeQueueExt int 64
compactionCqMappedFileSize int 10485760
compactionMappedFileSize int 104857600
compactionScheduleInternal int 900000
compactionThreadNum int 6
enableCompaction bool true
enableConsumeQueueExt bool false
enabledAppendPropCRC bool false
forceVerifyPropCRC bool false
mappedFileSizeConsumeQueueExt int 50331648
mapperFileSizeBatchConsumeQueue int 13800000
maxOffsetMapSize int 104857600
searchBcqByCacheEnable bool true
[cold]
coldDataFlowControlEnable bool false
coldDataScanEnable bool false
[delay]
appendTopicForTimerDeleteKey bool false
disappearTimeAfterStart! int -1
enableScheduleAsyncDeliver bool false
enableScheduleMessageStats bool true
flushDelayOffsetInterval long 10000
mappedFileSizeTimerLog int 104857600
messageDelayLevel str 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h
readUnCommitted bool false
scheduleAsyncDeliverMaxPendingLimit int 2000
scheduleAsyncDeliverMaxResendNum2Blocked int 3
timerColdDataCheckIntervalMs int 60000
timerCongestNumEachSlot int 2147483647
timerEnableCheckMetrics bool true
timerEnableRetryUntilSuccess bool false
timerFlushIntervalMs int 1000
timerGetMessageThreadNum int 3
timerInterceptDelayLevel bool false
timerMaxDelaySec int 259200
timerMetricSmallThreshold int 1000000
timerPrecisionMs int 1000
timerProgressLogIntervalMs int 10000
timerPutMessageThreadNum int 3
timerRecallToTimeWheelEnable bool true
timerRecallToTimelineEnable bool true
timerReputServiceCorePoolSize int 6
timerReputServiceMaxPoolSize int 6
timerReputServiceQueueCapacity int 10000
timerRollWindowSlot int 172800
timerSkipUnknownError bool false
timerStopEnqueue bool false
timerWheelEnable bool true
timerWheelSnapshotFlush bool false
timerWheelSnapshotIntervalMs int 10000
[lite]
enableLmq bool false
enableLmqQuota bool false
enableMultiDispatch bool false
maxLmqConsumeQueueNum int 20000
[memory]
accessMessageInMemoryHotRatio int 26
accessMessageInMemoryMaxRatio! int 40
cleanSwapedMapInterval long 300000
commitCommitLogLeastPages int 4
commitCommitLogThoroughInterval int 200
commitIntervalCommitLog! int 200
commitLogForceSwapMapInterval long 43200000
commitLogSwapMapInterval long 3600000
commitLogSwapMapReserveFileNum int 100
dataReadAheadEnable bool true
fastFailIfNoBufferInStorePool bool false
flushCommitLogLeastPages int 4
flushConsumeQueueLeastPages int 2
flushLeastPagesWhenWarmMapedFile int 4096
logicQueueForceSwapMapInterval long 43200000
logicQueueSwapMapInterval long 3600000
logicQueueSwapMapReserveFileNum int 20
mappedFileSwapEnable bool true
putConsumeQueueDataByFileChannel bool true
sharedByteBufferNum int 16
transientStorePoolEnable! bool false
transientStorePoolSize int 5
travelCqFileNumWhenGetMessage int 1
wakeCommitWhenPutMessage! bool true
wakeFlushWhenPutMessage! bool false
warmMapedFileEnable bool false
writeWithoutMmap! bool false
[metrics]
debugLockEnable bool false
sampleCountThreshold int 5000
sampleSteps int 32
[other]
brokerRole! enum ASYNC_MASTER
checkCRCOnRecover bool true
checkCommitLogOffsetOnRecover bool false
cleanFileForciblyEnable! bool true
cleanResourceInterval int 10000
commitLogRecoverMaxNum int 10
defaultQueryMaxNum int 32
deleteCommitLogFilesInterval int 100
deleteConsumeQueueFilesInterval int 100
deleteFileBatchMax! int 10
deleteWhen! str 04
diskFallRecorded bool true
diskMaxUsedSpaceRatio int 75
diskSpaceCleanForciblyRatio int 85
diskSpaceWarningLevelRatio int 90
enableCleanExpiredOffset! bool false
enableLogConsumeQueueRepeatedlyBuildWhenRecover bool false
enableRunningFlagsInFlush! bool false
fileReservedTime! int 72
flushCommitLogThoroughInterval int 10000
flushCommitLogTimed! bool true
flushConsumeQueueThoroughInterval int 60000
flushDiskType! enum ASYNC_FLUSH
flushIntervalCommitLog! int 500
flushIntervalConsumeQueue int 1000
indexFileReadEnable bool true
indexFileWriteEnable bool true
mappedFileSizeCommitLog int 1073741824
mappedFileSizeConsumeQueue int 6000000
maxBatchDeleteFilesNum int 50
maxConsumeQueueScan int 20000
maxFilterMessageSize int 16000
maxHashSlotNum int 5000000
maxIndexNum int 20000000
maxMessageSize int 4194304
maxMsgsNumBatch int 64
maxRecoveryCommitlogFiles int 30
maxTopicLength int 127
maxTransferBytesOnMessageInDisk! int 65536
maxTransferBytesOnMessageInMemory! int 262144
maxTransferCountOnMessageInDisk! int 8
maxTransferCountOnMessageInMemory! int 32
messageIndexEnable! bool true
messageIndexSafe! bool false
pullBatchMaxMessageCount int 160
putMessageTimeout int 8000
putMsgIndexHightWater int 600000
readOnlyCommitLogStorePaths str -
storePathCommitLog! str -
storePathRootDir! str (home)/store
syncFlushTimeout int 5000
[replication]
allAckInSyncStateSet! bool false
asyncLearner bool false
dLegerGroup str -
dLegerPeers str -
dLegerSelfId str -
duplicationEnable bool false
enableAutoInSyncReplicas! bool false
enableBatchPush bool false
enableDLegerCommitLog bool false
haFlowControlEnable! bool false
haHousekeepingInterval int 20000
haListenPort int 0
haMasterAddress! str -
haMaxGapNotInSync int 268435456
haMaxTimeSlaveNotCatchup long 15000
haSendHeartbeatInterval int 5000
haTransferBatchSize int 32768
inSyncReplicas! int 1
maxChecksumRange long 1073741824
maxHaTransferByteInSecond long 104857600
maxSlaveResendLength long 268435456
logicalDiskSpaceCleanForciblyThreshold double 0.8
minInSyncReplicas! int 1
offsetCheckInSlave bool false
preferredLeaderId str -
recheckReputOffsetFromCq bool false
replicasPerDiskPartition int 1
slaveTimeout int 3000
storePathBrokerIdentity! str -
storePathDLedgerCommitLog! str -
storePathEpochFile! str -
syncFromLastFile bool false
syncMasterFlushOffsetWhenStartup bool false
totalReplicas! int 1
[retention]
correctLogicMinOffsetForceInterval int 300000
correctLogicMinOffsetSleepInterval int 1
destroyMapedFileIntervalForcibly int 120000
redeleteHangedFileInterval int 120000
[rocksdb]
bottomMostCompressionTypeForConsumeQueueStore str zstd
cleanRocksDBDirtyCQIntervalMin long 60
combineAssignOffsetCQType str default
combineCQEnableCheckSelf bool false
combineCQLoadingCQTypes str default;defaultRocksDB
combineCQMaxExtraSearchCommitLogFiles int 3
combineCQPreferCQType str default
combineCQUseRocksdbForLmq bool false
enableRocksDBLog bool false
indexRocksDBEnable bool false
iteratorWhenUseRocksdbConsumeQueue bool true
maxRocksDBIndexQueryDays int 7
memTableFlushIntervalMs long 3600000
realTimePersistRocksDBConfig bool true
rocksdbCQDoubleWriteEnable bool false
rocksdbCompressionType str lz4
rocksdbFlushWalFrequency int 1024
rocksdbWalFileRollingThreshold long 1073741824
statRocksDBCQIntervalSec long 10
storeType! str default
timerRocksDBEnable bool false
timerRocksDBPrecisionMs long 1000
timerRocksDBRollIntervalHours int 1
timerRocksDBRollMaxTps double 8000.0
timerRocksDBRollRangeHours int 2
timerRocksDBStopScan bool false
timerRocksDBTimeExpiredMaxTps double 200000.0
transRocksDBEnable bool false
useSeparateStorePathForRocksdbCQ bool false
[threads]
batchDispatchRequestThreadPoolNums int 16
dispatchCqCacheNum int 4096
dispatchCqThreads int 10
dispatchFromSenderThread! bool false
enableAcceleratedRecovery bool false
enableAsyncReput bool true
enableBuildConsumeQueueConcurrently bool false
maxAsyncPutMessageRequests int 5000
osPageCacheBusyTimeOutMills long 1000
spinLockCollisionRetreatOptimalDegree int 1000
topicQueueLockNum int 32
useABSLock bool false
useReentrantLockWhenPutMessage bool true
[tiered]
brokerClusterName str DefaultCluster
brokerName str (host name)
commitLogRollingInterval int 24
commitLogRollingMinimumSize int 16777216
objectStoreAccessKey str -
objectStoreBucket str -
objectStoreEndpoint str -
objectStoreSecretKey str -
readAheadCacheEnable bool true
readAheadCacheExpireDuration long 15000
readAheadCacheSizeThresholdRate double 0.3
readAheadMessageCountThreshold int 4096
readAheadMessageSizeThreshold int 16777216
recordGetMessageResult bool false
tieredBackendServiceProvider str org.apache.rocketmq.tieredstore.provider.MemoryFileSegment
tieredMetadataServiceProvider str org.apache.rocketmq.tieredstore.metadata.DefaultMetadataStore
tieredStorageLevel enum NOT_IN_DISK
tieredStoreCommitLogMaxSize long 1073741824
tieredStoreConsumeQueueMaxSize long 104857600
tieredStoreCrcCheckEnable bool false
tieredStoreDeleteFileEnable bool true
tieredStoreDeleteFileInterval long 3600000
tieredStoreFilePath str -
tieredStoreFileReservedTime int 72
tieredStoreGroupCommit bool true
tieredStoreGroupCommitCount int 4096
tieredStoreGroupCommitSize int 4194304
tieredStoreGroupCommitTimeout int 30000
tieredStoreIndexFileMaxHashSlotNum int 5000000
tieredStoreIndexFileMaxIndexNum int 20000000
tieredStoreMaxGroupCommitCount int 10000
tieredStoreMaxPendingLimit int 10000
[transactions]
transWriteOriginTransHalfEnable bool true
[gone]
haSlaveFallbehindMax int 268435456
mapedFileSizeCommitLog int 1073741824
mapedFileSizeConsumeQueue int 6000000
maxCommitJitter int 1000
maxDelayTime int 40
memTableFlushInterval long 3600000
readAheadBatchSizeFactorThreshold double 0.8
readAheadMaxFactor int 24
readAheadMinFactor int 2
tieredStoreIndexFileRollingIdleInterval int 10800000
[fixed]
abortFile str (store)/abort
storeCheckpoint str (store)/checkpoint
storePathConsumeQueue str (store)/consumequeue
storePathConsumerQueue str (store)/consumequeue
storePathIndex str (store)/index
[trocket]
diskFreeBytesEnough long 4294967296
haAllowedSlaves str -
haListenAddress str 127.0.0.1
haLogCheckEnable bool true
haTlsCertPath str -
haTlsEnable bool false
haTlsKeyPath str -
haTlsTrustCertPath str -
slaveAckAfterFlush bool true
storeBytesMax long 0
verifyOldRecords bool true
zeroAheadSize int 1048576
"""
