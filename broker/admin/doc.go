// Package admin answers what JetStream has no word for: who declared a Topic or a Subscription,
// which broker leads each shard, which are in sync, and why one is not served; and which brokers there are.
// It makes Topics with what JetStream has no word for, drains brokers, and shows and confirms their
// clocks. `carillon topic`, `carillon subscription` and `carillon brokers` ask it, through any broker.
//
// A request is published with a reply subject, and answered with one JSON object:
//
//	$CARILLON.API.TOPIC.LIST                          a ListRequest, or nothing   TopicList
//	$CARILLON.API.TOPIC.INFO.<topic>                  nothing                     TopicInfo
//	$CARILLON.API.SUBSCRIPTION.LIST.<topic>           a ListRequest, or nothing   SubscriptionList
//	$CARILLON.API.SUBSCRIPTION.INFO.<topic>.<name>    nothing                     SubscriptionInfo
//
//	$CARILLON.API.BROKER.LIST                         a ListRequest, or nothing   BrokerList
//	$CARILLON.API.BROKER.CLOCK.<id>                   nothing                     ClockInfo
//	$CARILLON.API.BROKER.CONFIRMCLOCK.<id>            a ConfirmClockRequest       ClockInfo
//
//	$CARILLON.API.TOPIC.CREATE.<topic>                a CreateRequest             TopicInfo
//	$CARILLON.API.BROKER.DRAIN.<id>                   a DrainRequest, or nothing  BrokerInfo
//	$CARILLON.API.BROKER.UNDRAIN.<id>                 nothing                     BrokerInfo
//
//	$CARILLON.API.RECORDS.<topic>.<shard>             a RecordsRequest            records, see docs/protocol.md
//	$CARILLON.API.SNAPSHOT.<topic>                    a SnapshotRequest           SnapshotAnswer
//	$CARILLON.API.SNAPSHOT.<topic>.<shard>            a SnapshotRequest           SnapshotAnswer
//
// What can't be answered is an Error in the same object. Each request is answered as follows:
//
//  1. The broker that leads the shard answers for records. Another broker forwards the request, once.
//  2. The named broker answers for its clock. Another broker forwards the request, once.
//  3. The broker that is asked for a snapshot of a whole Topic assembles it from the leaders' answers.
//  4. The broker that is asked answers everything else.
//
// Invariants:
//
//	A1  What only asks is answered from the State that this broker follows, and the logs of shards that it leads. It
//	    waits for no other broker, but for a snapshot of a whole Topic, and not for etcd; the revision says of when an answer is. What writes waits for
//	    etcd, a bounded number at a time, each within a deadline, and never on the goroutine of a connection.
//	A2  What one read of a connection may cost is bounded: by answers, and by bytes of each.
//	A3  A list goes on behind a name, not at a number: what is made or deleted between two pages
//	    makes no other Topic appear twice or be left out.
//	A4  A field of a request that is not known is refused, and so is a payload where none belongs.
//	A5  Records are shown up to the high watermark, and densely, or with a word of each gap. What is read at once, what waits to be read and
//	    what waits for records to come is bounded; more is refused, in words.
//	A6  A snapshot of a whole Topic is held of all shards or of none, and of each at a moment between request and answer.
//	    Only the shards' leaders know of it, each of its part, until a lease is over.
//	A7  Whatever is written may be asked for again: what is there already, just so, is answered as if it had just been made.
//
// When the process dies in it, who asked gets no answer and asks again: nothing is kept here, and a
// write is one transaction of etcd, which happened or did not.
package admin
