// Package admin answers what JetStream has no word for: who declared a Topic or a Subscription,
// which broker leads each shard, and why one is not served. `carillon topic` and `carillon
// subscription` ask it, through any broker.
//
// A request is published with a reply subject, and answered with one JSON object:
//
//	$CARILLON.API.TOPIC.LIST                          a ListRequest, or nothing   TopicList
//	$CARILLON.API.TOPIC.INFO.<topic>                  nothing                     TopicInfo
//	$CARILLON.API.SUBSCRIPTION.LIST.<topic>           a ListRequest, or nothing   SubscriptionList
//	$CARILLON.API.SUBSCRIPTION.INFO.<topic>.<name>    nothing                     SubscriptionInfo
//
// What can't be answered is an Error in the same object.
//
// Invariants:
//
//	A1  It only reads, and only the State that this broker follows. It waits for nobody, so it
//	    answers with etcd down, too; the revision says of when the answer is.
//	A2  What one read of a connection may cost is bounded: by answers, and by bytes of each.
//	A3  A list goes on behind a name, not at a number: what is made or deleted between two pages
//	    makes no other Topic appear twice or be left out.
//	A4  A field of a request that is not known is refused, and so is a payload where none belongs.
//
// When the process dies in it, who asked gets no answer and asks again: nothing is kept here.
package admin
