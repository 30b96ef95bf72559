"""Every key of RocketMQ's name server, with type and default.

Read out of the setters and fresh instances of
NamesrvConfig, ControllerConfig and JraftConfig
of RocketMQ 5.5.0; keys that 4.x and 5.0 to 5.3 had besides are under `[gone]`, our own under
`[trocket]`. The sections say what it means that trocket does not support a key (`EFFECTS` in
common/known_keys.py); whether it does, the dataclass says. Format: `parse_known_keys`.
"""

from __future__ import annotations

NAMESRV_KEYS = """\
[metrics]
metricGrpcExporterIntervalInMills long 60000
metricGrpcExporterTimeOutInMills long 3000
metricLoggingExporterIntervalInMills long 10000
metricsExporterType enum DISABLE
metricsGrpcExporterHeader str -
metricsGrpcExporterTarget str -
metricsInDelta bool false
metricsLabel str -
metricsPromExporterHost str -
metricsPromExporterPort int 5557
[other]
clusterTest bool false
configBlackList str configBlackList;configStorePath;kvConfigPath
configStorePath str (home)/namesrv/namesrv.properties
deleteTopicWithBrokerRegistration bool false
electMasterMaxRetryCount int 3
enableAllTopicList bool true
enableElectUncleanMaster bool false
enableTopicList bool true
jRaftElectionTimeoutMs int 1000
jRaftGroupId str jRaft-Controller
jRaftInitConf str localhost:9880,localhost:9881,localhost:9882
jRaftScanWaitTimeoutMs int 1000
jRaftServerId str localhost:9880
jRaftSnapshotIntervalSecs int 3600
kvConfigPath str (home)/namesrv/kvConfig.json
mappedFileSize int 1073741824
needWaitForService bool false
notifyBrokerRoleChanged bool true
notifyMinBrokerIdChanged bool false
orderMessageEnable bool false
processReadEvent bool false
productEnvName str center
returnOrderTopicConfigToBroker bool true
rocketmqHome str $ROCKETMQ_HOME
scanInactiveMasterInterval long 5000
scanNotActiveBrokerInterval long 5000
supportActingMaster bool false
waitSecondsForService int 45
[replication]
controllerDLegerGroup str -
controllerDLegerPeers str -
controllerDLegerSelfId str -
controllerRequestThreadPoolQueueCapacity int 50000
controllerStorePath str -
controllerThreadPoolNums int 16
controllerType str DLedger
enableControllerInNamesrv bool false
jRaftControllerRPCAddr str localhost:9770,localhost:9771,localhost:9772
[threads]
clientRequestThreadPoolNums int 8
clientRequestThreadPoolQueueCapacity int 50000
defaultThreadPoolNums int 16
defaultThreadPoolQueueCapacity int 10000
unRegisterBrokerQueueCapacity int 3000
[trocket]
remotingBytesMax int -
"""
