/* Calls to a region host (framed transport, binary protocol).
 *
 * Two faces. The packed calls carry record batches as they are stored (layout: delivery/batch/layout.py) and are what
 * Hoot's own client uses. The plain calls carry one struct per message and need nothing but a stock Thrift client; they
 * follow the multi-language calls of HQueue.
 */
namespace py delivery

exception HootError {
  1: string code        // stable word, for programs
  2: string message     // one line, for people
  3: bool retryable
  4: string address     // the owner's host:port with code "not_owner", else empty
}

struct PublishReply {
  1: i64 baseId         // ids baseId … baseId + count - 1
  2: i32 count
  3: string durability  // what this acknowledgement means: fsync, os or memory
  4: bool duplicate     // true when this sequence had been stored before
}

struct ReadRequest {
  1: string queue
  2: i32 partition
  3: i64 after          // ids above this one
  4: i64 upTo           // stop at ids above this one; 0 for no end
  5: list<string> topics  // names and patterns; empty for all
  6: i32 bytesMax
  7: i32 waitMs         // how long to wait for something new; at most 30000
  8: optional string filter  // an expression, or a rule as JSON (docs/filters.md); absent for all
  9: optional binary transaction  // only what it sees, up to the first message of one in progress (docs/transactions.md)
  10: optional bool asides  // with no filter and no transaction: all batches, the engine's own among them (archives)
}

struct ReadReply {
  1: binary batches     // whole record batches, one after another; the first may begin at or below `after`
  2: i64 position       // everything up to here was looked at: the next `after`
  3: i64 watermark      // the last id that is complete now
}

/* What the slowest subscription of a partition has before it, as far as it was not acknowledged when that was measured. */
struct Backlog {
  1: i64 messages
  2: i64 bytes
  3: string subscription        // empty for none
  4: bool full                  // publishers wait for it: queue_full
}

struct PartitionInfo {
  1: i32 partition
  2: i64 firstId
  3: i64 lastId
  4: i64 messages
  5: i64 bytes
  6: i64 epoch
  7: bool closed        // nothing can be published here, and nothing that was is on its way: lastId is the last one
  8: optional Backlog backlog   // absent where the queue does not limit it, or it was not measured yet
}

/* One message of the plain face. On put: partition and id are ignored. */
struct Message {
  1: i64 id
  2: i32 partition
  3: string topic
  4: optional binary key
  5: map<string, binary> headers
  6: binary body
}

struct Scan {
  1: optional i64 startId   // first id wanted; default the oldest
  2: optional i64 stopId    // first id not wanted; default no end
  3: list<string> topics    // empty for all
}

struct QueueLocation {
  1: i32 partition
  2: string host
  3: i32 port
}

/* What becomes of messages that are not handled (docs/retries.md); what is absent is the default. */
struct RetryPolicy {
  1: optional string order          // "partition" or "key"
  2: optional double firstSeconds
  3: optional double factor
  4: optional double longestSeconds
  5: optional double jitter
  6: optional i32 deliveriesMax
  7: optional i32 crashesMax
  8: optional double timeoutSeconds
  9: optional bool deadLetters
}

/* How fast a subscription is delivered at most, and how much is out with it (docs/flow.md): 0 for no limit of its own. */
struct Flow {
  1: optional double messagesPerSecond
  2: optional double bytesPerSecond
  3: optional i32 windowMessages
  4: optional i32 windowBytes
}

/* What a new subscription is to. */
struct SubscriptionOptions {
  1: list<i32> partitions       // empty for all
  2: list<string> topics        // empty for all
  3: optional string start      // where to begin: "latest" (the default), "earliest", the id of the first message wanted,
                                // or a time with its zone, such as 2026-01-31T12:00:00Z; or "latest-per-key"
  4: map<i32, string> starts    // instead of `start`: per partition; those not named begin at the latest message
  5: optional RetryPolicy retryPolicy
  6: optional i32 bound         // only so many of the newest messages of a partition matter; 0 for all
  7: optional string kind       // "exclusive" (the default), "failover", "shared" or "key_shared" (docs/groups.md);
                                // listeners can be attached by attachListener to exclusive ones alone
  8: optional string filter     // an expression, or a rule as JSON (docs/filters.md); absent or empty for none
  9: optional Flow flow
  10: optional string isolation // "uncommitted" (the default) or "committed": nothing of a transaction before its commit
}

/* What is to become different of a subscription; what is absent stays, in the two structs as well. */
struct SubscriptionChanges {
  1: optional list<string> topics       // empty for all
  2: optional string filter             // empty for none
  3: optional RetryPolicy retryPolicy
  4: optional i32 bound                 // 0 for all
  5: optional Flow flow
  6: optional string kind               // only while nobody is attached: subscription_busy
  7: optional string isolation          // "uncommitted" or "committed"
}

/* Where a program listens that implements a service of subscriber.thrift. */
struct ListenerAddress {
  1: string address             // as the region hosts reach it
  2: i32 port
  3: string token               // what it answers to hello: random, at least 16 characters, new with each start
  4: optional string protocol   // "plain" (the default) for PlainListener, "packed" for Listener
}

/* A callback that runs in a subscriber. */
struct RunningCallback {
  1: string name
  2: string queue
  3: i32 partition
  4: i64 message              // its id; 0 when it cannot be told
  5: double seconds           // since the push that it belongs to was begun
  6: bool moving              // another message had its turn while the subscriber was looked at
  7: string stack
  8: bool held                // it is none: the application wants no messages now
}

/* How one partition of a subscription is being delivered (delivery/dispatch/observation.py says what each field means).
   Times in ms since 1970 by the clock of the host, 0 for never. */
struct Observation {
  1: i32 partition
  2: i64 nowMs
  3: string stage
  4: string host
  5: string trouble
  6: i64 beganMs
  7: i64 position
  8: i64 heard
  9: i64 scanned
  10: i64 last
  11: optional i64 lag
  12: optional i64 lagBytes
  13: i64 oldestMs
  14: optional double trend
  15: i64 out
  16: i64 outSinceMs
  17: bool full
  18: i64 deliveredMs
  19: i64 acknowledgedMs
  20: i64 movedMs
  21: i64 checkpointedMs
  22: i64 redelivered
  23: bool filtered
  24: i64 readingMs
  25: i64 shelvingMs
  26: i64 failing
  27: i64 failures
  28: string error
  29: i64 againMs
  30: i64 parked
  31: i64 parkedKeys
  32: bool parkingFull
  33: i64 unreachableMs
  34: string unreachable
  35: optional RunningCallback callback
  36: i64 pausedMs
  37: i64 pausedUntilMs
  38: i64 zookeeperLostMs
  39: bool paced
  40: string pausedBy
  41: string member
  42: bool limited
  43: i64 waitingFor
  44: i64 waitingMs
  45: string waitingTrouble
  46: bool holding
}

/* A transaction that has begun (docs/transactions.md). */
struct Transaction {
  1: i64 writePointer
  2: i64 deadlineMs     // since 1970, by the clock of the host that manages transactions; from then on it is invalid
  3: binary snapshot    // what it sees, as polls take it: Tephra's TTransaction in the binary protocol
}

/* One that is in progress or invalid. */
struct TransactionInfo {
  1: i64 writePointer
  2: string state       // "in_progress" or "invalid"
  3: i64 deadlineMs     // as above; 0 for an invalid one
}

service RegionHost {
  // packed
  /* `generation` is that of the queue that is meant, as its record in ZooKeeper has it: unknown_queue when the queue was
     deleted, also if there is another one of the same name now. Absent: whichever is known to the host. */
  PublishReply publish(1: string queue, 2: i32 partition, 3: binary batch, 4: optional string generation)
    throws (1: HootError error)
  /* Whole batches of another queue, one after another as `read` gives them, to be stored with the ids that they have
     there. Only a closed queue takes them, and only behind `after`, which must be the last id in the partition:
     out_of_place when it is not; partitionInfo tells it. Messages of transactions are refused (invalid_request), and what
     topics keep beside their messages, too. Answers the last id that is stored then. */
  i64 importBatches(1: string queue, 2: i32 partition, 3: i64 after, 4: binary batches, 5: string generation)
    throws (1: HootError error)
  ReadReply read(1: ReadRequest request) throws (1: HootError error)
  PartitionInfo partitionInfo(1: string queue, 2: i32 partition) throws (1: HootError error)
  i64 countMessages(1: string queue, 2: i32 partition, 3: i64 after, 4: i64 upTo) throws (1: HootError error)
  /* For each of `counts`, which rise, the id up to which so many messages lie above `after`: where to divide a range, or
     to end a bounded read. `upTo` (0: the last complete id) where there are not so many. */
  list<i64> locateMessages(1: string queue, 2: i32 partition, 3: i64 after, 4: i64 upTo, 5: list<i64> counts)
    throws (1: HootError error)
  /* The last id at or below `upTo` (0: the last complete id) with nothing above `after` before it that is of a transaction
     in progress, as `transaction` has it: up to there a reader with that does not stop. */
  i64 decidedUpTo(1: string queue, 2: i32 partition, 3: i64 after, 4: i64 upTo, 5: binary transaction)
    throws (1: HootError error)

  // among hosts, and for operators
  /* Sent to a host when a partition's record names it, or when nobody owns the partition: it opens the partition, or
     says not_owner. It answers when the partition can be used. */
  void takePartition(1: string queue, 2: i32 partition) throws (1: HootError error)
  /* Tells a host that nobody owns these partitions, and that the host of the id `unable` could not open or keep them:
     where one of them is wanted, it is tried. */
  void partitionsFreed(1: string queue, 2: list<i32> partitions, 3: string unable) throws (1: HootError error)
  /* Sent to the owner, which hands the partition over to the host of that id and answers when that has opened it.
     not_owner from another host; unknown_host, host_draining. */
  void movePartition(1: string queue, 2: i32 partition, 3: string host) throws (1: HootError error)
  /* With true the host takes no partitions any more and gives away those it has; with false it takes part again.
     Answers how many it owns at this moment: to be asked until it is 0. */
  i32 drainHost(1: bool draining) throws (1: HootError error)

  /* How this host delivers a subscription: of those of its partitions that this host serves, or tries to, the first
     ones above `after` (-1 for all), at most `limit` of them and at most 256. What is behind is counted, and a
     subscriber that has not answered for a second is asked what it runs, so that this may take two seconds. */
  list<Observation> observe(1: string queue, 2: string subscription, 3: i32 after, 4: i32 limit)
    throws (1: HootError error)

  // transactions (docs/transactions.md); the host that manages them answers, others say not_owner with its address
  /* timeoutMs: up to 600000, 0 for 30000. */
  Transaction beginTransaction(1: i32 timeoutMs) throws (1: HootError error)
  /* All that it published becomes visible; fine when it was committed already. `changes` are keys, of whatever it
     changed elsewhere: transaction_conflict when another one changed one of them and committed since this one began. */
  void commitTransaction(1: i64 writePointer, 2: list<binary> changes) throws (1: HootError error)
  /* For one that has taken back all that it published. */
  void abortTransaction(1: i64 writePointer) throws (1: HootError error)
  /* For one that could not: nobody will see it. */
  void invalidateTransaction(1: i64 writePointer) throws (1: HootError error)
  /* "in_progress", "committed", "aborted" or "invalid"; unknown_transaction some time after its end. */
  string transactionState(1: i64 writePointer) throws (1: HootError error)
  /* What one sees who begins no transaction, as polls take it. While all of `unfinished` are in progress, it answers when
     any transaction has ended, or after waitMs (up to 30000). */
  binary transactionSnapshot(1: list<i64> unfinished, 2: i32 waitMs) throws (1: HootError error)
  /* How at most 1000 transactions stand at this moment: as transactionState, or "unknown". Only one that is in progress
     may write. */
  list<string> mayWrite(1: list<i64> writePointers) throws (1: HootError error)
  /* All that are in progress or invalid, oldest first. */
  list<TransactionInfo> listTransactions() throws (1: HootError error)
  /* Forgets the invalid transactions that began before a time, and says how many: what is left of their messages is
     visible from then on. */
  i32 pruneTransactions(1: i64 beforeMs) throws (1: HootError error)
  /* Sent to the owner of a partition: takes back all that is stored there under a write pointer, and what will be. */
  void rollBack(1: string queue, 2: i32 partition, 3: i64 writePointer) throws (1: HootError error)

  // plain
  i64 putMessage(1: string queue, 2: Message message) throws (1: HootError error)
  i64 putMessageWithPid(1: string queue, 2: i32 partition, 3: Message message) throws (1: HootError error)
  list<i64> putMessages(1: string queue, 2: list<Message> messages) throws (1: HootError error)
  list<i64> putMessagesWithPid(1: string queue, 2: i32 partition, 3: list<Message> messages) throws (1: HootError error)
  i32 openQueueScanner(1: string queue, 2: Scan scan) throws (1: HootError error)
  i32 openPartitionScanner(1: string queue, 2: i32 partition, 3: Scan scan) throws (1: HootError error)
  i32 openCombinedPartitionScanner(1: string queue, 2: list<i32> partitions, 3: Scan scan) throws (1: HootError error)
  list<Message> messageScannerGet(1: i32 scannerId) throws (1: HootError error)   // one message; empty at the end
  list<Message> messageScannerGetList(1: i32 scannerId, 2: i32 count) throws (1: HootError error)
  void messageScannerClose(1: i32 scannerId) throws (1: HootError error)
  list<QueueLocation> getQueueLocations(1: string queue) throws (1: HootError error)

  // subscribing, from any language (docs/languages.md); any host takes these calls
  /* subscription_exists when it is there: whoever does not know whether an earlier call came through asks again. */
  void createSubscription(1: string queue, 2: string name, 3: SubscriptionOptions options) throws (1: HootError error)
  /* Also while a listener is attached: a running delivery follows at once. */
  void updateSubscription(1: string queue, 2: string name, 3: SubscriptionChanges changes) throws (1: HootError error)
  /* Nothing more is delivered for so long, or with 0 until it is resumed; a second pause replaces the first. What is out
     is still to be answered. Answered when all hosts that deliver hold to it, or after three seconds. */
  void pauseSubscription(1: string queue, 2: string name, 3: i64 forMs) throws (1: HootError error)
  /* Fine when it is not paused. */
  void resumeSubscription(1: string queue, 2: string name) throws (1: HootError error)
  /* With its positions, and whoever is attached gets nothing more. */
  void deleteSubscription(1: string queue, 2: string name) throws (1: HootError error)
  /* Messages are pushed to the listener until the lease ends; called again, on any host, it is renewed. Renew it three
     times in a lease, and at once on another host when the connection to this one breaks. leaseMs: 1000 to 600000, 0
     for 30000. subscription_busy while another one that lives is attached, unless forced: do not force renewals.
     invalid_request for a plain listener of a subscription with the order of keys. */
  void attachListener(1: string queue, 2: string subscription, 3: ListenerAddress listener, 4: i32 leaseMs,
                      5: bool force) throws (1: HootError error)
  /* Ends the lease; fine when the listener is not attached (any more). */
  void detachListener(1: string queue, 2: string subscription, 3: ListenerAddress listener) throws (1: HootError error)
}
