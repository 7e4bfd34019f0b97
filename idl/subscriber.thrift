/* Calls from a region host to a subscriber's listener (framed transport, binary protocol).
 *
 * A host connects, asks `hello`, and sends nothing else unless the answer proves that the listener is the one which the
 * subscription names. Calls on one connection may be sent before earlier ones are answered; they are answered in order.
 */
namespace py subscriber

const i32 OK = 0          // every message was handled
const i32 FAILED = 1      // a listener raised; `position` is the last id that was handled
const i32 SKIPPED = 2     // follows a failed push of the same run: nothing was called
const i32 STALE = 3       // from an epoch or a run that is over: nothing was called
const i32 UNKNOWN = 4     // no such subscription here (any more)

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
}

struct PushReply {
  1: i32 status
  2: i64 position       // with OK the last id covered by the push; with FAILED the last id handled
  3: string error       // with FAILED: type and text of what the listener raised, at most 1000 characters
}

service Listener {
  string hello(1: string queue, 2: string subscription)   // the listener's token; empty when it has no such subscription
  PushReply push(1: Push push)
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
