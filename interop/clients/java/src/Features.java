import java.util.Map;
import java.util.TreeMap;

/** The scenarios, by their names. */
final class Features {
    /** Plays one. */
    interface Feature {
        void play(Stage stage) throws Exception;
    }

    static final Map<String, Feature> ALL = new TreeMap<>();

    static {
        ALL.put("send_sync", SendScenarios::sync);
        ALL.put("send_async", SendScenarios::async);
        ALL.put("send_oneway", SendScenarios::oneway);
        ALL.put("send_batch", SendScenarios::batch);
        ALL.put("send_by_selector", SendScenarios::bySelector);
        ALL.put("send_auto_created", SendScenarios::autoCreated);
        ALL.put("send_too_large", SendScenarios::tooLarge);
        ALL.put("send_unicode", SendScenarios::unicode);
        ALL.put("send_compressed", SendScenarios::compressed);
        ALL.put("send_vip", SendScenarios::vip);
        ALL.put("push_concurrent", PushScenarios::concurrent);
        ALL.put("push_orderly", PushScenarios::orderly);
        ALL.put("push_broadcasting", PushScenarios::broadcasting);
        ALL.put("push_tags", PushScenarios::tags);
        ALL.put("push_sql", PushScenarios::sql);
        ALL.put("push_two_topics", PushScenarios::twoTopics);
        ALL.put("group_from_first", GroupScenarios::fromFirst);
        ALL.put("group_from_last", GroupScenarios::fromLast);
        ALL.put("group_from_time", GroupScenarios::fromTime);
        ALL.put("group_goes_on", GroupScenarios::goesOn);
        ALL.put("group_rebalance", GroupScenarios::rebalance);
        ALL.put("pull_queue", PullScenarios::queue);
        ALL.put("later_retry", LaterScenarios::retry);
        ALL.put("later_partly", LaterScenarios::partly);
        ALL.put("later_orderly", LaterScenarios::orderly);
        ALL.put("later_level", LaterScenarios::level);
        ALL.put("refused", AccountScenarios::refused);
        Version.addFeatures(ALL);
    }

    private Features() {
    }
}
