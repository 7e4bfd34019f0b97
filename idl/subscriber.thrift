/* Calls from a region host to a subscriber's listener (framed transport, binary protocol).
 *
 * A host connects, asks `hello`, and sends nothing else unless the answer proves that the listener is the one which the
 * subscription names. Calls on one connection may be sent before earlier ones are answered, and be answered in any order;
 * but one of which not all was handled, and one without batches, only after those of its partition before it.
 */
namespace py subscriber

const i32 OK = 0          // every message was handled, except for `failures`
const i32 FAILED = 1      // a message was not handled; `position` is the last id that was
const i32 SKIPPED = 2     // follows a failed push of the same run: nothing was called
const i32 STALE = 3       // from an epoch or a run that is over: nothing was called
const i32 UNKNOWN = 4     // no such subscription here (any more)

/* A message up to where the run begins that was not handled, and is not to be overtaken by later ones of its key. */
struct ParkedMessage {
  1: i64 id
  2: binary key         // absent: it has none, and nothing waits for it
}

struct Push {
  1: string queue
  2: string subscription
  3: i32 partition
  4: i64 epoch          // of the partition's owner; rises with each new owner
  5: i64 run            // rises with each rewind of the same owner
  6: i64 after          // only messages above this id are meant; the end of the push before it, in the same run or an
                        // earlier one, whatever the topics left out in between
  7: binary batches     // whole record batches, one after another
  8: optional i64 moves // rises when somebody moves the position by hand: ids handled before may come again, and count
  9: list<ParkedMessage> parked   // in the first push of a run: what waits of keys that failed
  10: bool again        // these are parked messages again, not the next ones; `after` only says where the run began
  11: list<i64> settled // with again: parked messages that were given up
}

/* Why a message was not handled. */
const i32 RAISED = 0      // the listener raised
const i32 RETRY = 1       // it asks for the message again
const i32 REJECTED = 2    // it never wants to see it again
const i32 UNREADABLE = 3  // the push is damaged from there on: nobody was called
const i32 HELD = 4        // an earlier message of its key was not handled, so nobody was called

struct Failure {
  1: i64 id             // of the message
  2: i64 last           // of the last message that failed with it: a batch listener takes several at once
  3: i32 kind
  4: i64 afterMs        // with RETRY: when; absent: as the subscription says
  5: string error       // type and text of what the listener raised, at most 1000 characters
  6: binary key         // of the message, if it has one
}

struct PushReply {
  1: i32 status
  2: i64 position       // with OK the last id covered by the push; with FAILED the last id handled
  3: list<Failure> failures   // with FAILED: at last the one that ended the run. Before it, and with OK: messages that
                              // were not handled, and that the host has to park (only with order="key")
  4: optional i32 abreast     // how many messages of a partition are worked on at the same time, where that may be more
                              // than one: with fewer out there would be nothing to do for some
}

/* What a subscriber's callbacks are doing, for a host that waits for an answer. */
struct Running {
  1: string name        // of the function; empty for none, where the message waits to be acknowledged by hand
  2: string queue
  3: i32 partition
  4: i64 message        // its id; 0 when it cannot be told
  5: double seconds     // since the push that it belongs to was begun
  6: bool moving        // another message had its turn within the half second for which this looked
  7: string stack       // where it is, as a traceback; at most 8,000 characters
  8: bool held          // it is none: the application wants no messages now, and pushes wait for that
}

/* A host has one connection to an address, for all subscriptions that are attached there, and says `hello` on it for each.
   Replies may come in any order, but those of a partition's pushes that failed, or hold something. Of one subscription at
   most 1000 pushes, and but for the last one 32 MiB, are unanswered: read on whatever one of them waits for. */
service Listener {
  string hello(1: string queue, 2: string subscription)   // the listener's token; empty when it has no such subscription
  PushReply push(1: Push push)
  /* The callbacks that run now; empty for whoever does not know the token. Not on the connection of pushes, where it
     would wait for their answers. */
  list<Running> running(1: string queue, 2: string subscription, 3: string token)
}

/* The plain face: what a listener in any language implements when its registration says "protocol": "plain". */
struct PlainMessage {
  1: i64 id
  2: i32 partition
  3: string topic
  4: optional binary key
  5: map<string, binary> headers
  6: binary body
}

service PlainListener {
  string hello(1: string queue, 2: string subscription)
  i32 onMessages(1: string queue, 2: string subscription, 3: list<PlainMessage> messages)   // OK or FAILED for all
}
