// Package admin serves the API of `carillon topic`, `carillon subscription`, `carillon view` and
// `carillon brokers`, through every broker. It covers what JetStream cannot express: owners,
// leaders, in-sync replicas, why a shard is not served, all settings of a Topic, brokers, drains
// and clocks, what is set aside on volumes, batches of records, snapshots, attributes of subjects,
// and the declarations of Views.
//
// A request is published with a reply subject, and answered with one JSON object:
//
//	$CARILLON.API.TOPIC.LIST                          a ListRequest, or nothing   TopicList
//	$CARILLON.API.TOPIC.INFO.<topic>                  nothing                     TopicInfo
//	$CARILLON.API.TOPIC.COPIES.<topic>.<broker id>    nothing                     TopicCopies
//	$CARILLON.API.SUBSCRIPTION.LIST.<topic>           a ListRequest, or nothing   SubscriptionList
//	$CARILLON.API.SUBSCRIPTION.INFO.<topic>.<name>    nothing                     SubscriptionInfo
//
//	$CARILLON.API.BROKER.LIST                         a ListRequest, or nothing   BrokerList
//	$CARILLON.API.BROKER.CLOCK.<id>                   nothing                     ClockInfo
//	$CARILLON.API.BROKER.CONFIRMCLOCK.<id>            a ConfirmClockRequest       ClockInfo
//	$CARILLON.API.BROKER.SETASIDE.<id>                a ListRequest, or nothing   SetAsideList
//	$CARILLON.API.BROKER.DELETESETASIDE.<id>          a DeleteSetAsideRequest     SetAsideDeleted
//
//	$CARILLON.API.TOPIC.CREATE.<topic>                a CreateRequest             TopicInfo
//	$CARILLON.API.BROKER.DRAIN.<id>                   a DrainRequest, or nothing  BrokerInfo
//	$CARILLON.API.BROKER.UNDRAIN.<id>                 nothing                     BrokerInfo
//
//	$CARILLON.API.RECORDS.<topic>.<shard>             a RecordsRequest            records
//	$CARILLON.API.SNAPSHOT.<topic>                    a SnapshotRequest           SnapshotAnswer
//	$CARILLON.API.SNAPSHOT.<topic>.<shard>            a SnapshotRequest           SnapshotAnswer
//
//	$CARILLON.API.ATTRIBUTES.SET                      an AttributesRequest        SubjectAttributes
//	$CARILLON.API.ATTRIBUTES.GET                      a SubjectRequest            SubjectAttributes
//	$CARILLON.API.ATTRIBUTES.DELETE                   a SubjectRequest            SubjectAttributes
//	$CARILLON.API.ATTRIBUTES.LIST                     an AttributesListRequest    AttributesList
//
//	$CARILLON.API.VIEW.CREATE                         a CreateViewRequest         ViewInfo
//	$CARILLON.API.VIEW.UPDATE                         a CreateViewRequest         ViewInfo
//	$CARILLON.API.VIEW.DELETE                         a ViewRequest               ViewInfo
//	$CARILLON.API.VIEW.LIST                           a ViewListRequest           ViewList
//	$CARILLON.API.VIEW.INFO                           a ViewRequest               ViewInfo
//	$CARILLON.API.VIEW.GET                            a ViewGetRequest            ViewValues
//
// An error is an Error in the same object. Requests are answered by:
//
//  1. Records: the shard's leader. Another broker forwards the request, once.
//  2. Clocks, copies and what is set aside: the named broker. Another broker forwards the request,
//     once.
//  3. Snapshots of whole Topics: the broker that gets the request, from the leaders' answers.
//  4. Values of Views: the broker that writes their results. Another broker judges the rights of
//     its client and forwards the request, once.
//  5. Single Views: the broker that gets the request. It asks the broker that writes the results
//     why they are not up to date. If that one is silent, the answer says that it is not known.
//  6. Everything else: the broker that gets the request.
//
// Invariants:
//
//	A1  Reads are answered from the State that this broker follows and from shards that it leads.
//	    They wait neither for etcd nor, except for snapshots of whole Topics, values of Views and
//	    the trouble of one View, for another broker.
//	    The revision in the answer says at which point it holds. Writes wait for etcd: a bounded
//	    number at a time, each with a deadline, and never on the goroutine of a connection.
//	    Requests about what is set aside read or change the volume, in the same way but without a
//	    deadline: operations on a disk can't be ended.
//	A2  The cost of one read of a connection is bounded, in answers and in bytes per answer.
//	A3  A page of a list continues after a name, not at a number: what is created or deleted between
//	    two pages makes no other object appear twice or be left out.
//	A4  An unknown field of a request is refused, and so is a payload where none is expected.
//	A5  Records are returned up to the high watermark, without gaps, or with each gap marked. The
//	    number of concurrent, queued and waiting reads is bounded; further requests are refused.
//	    Requests with a condition have goroutines and a queue of their own, judge for a bounded time
//	    each, and on a part of the cores: no other request waits for them.
//	A6  A snapshot of a whole Topic holds all shards or none, each at a moment between request and
//	    answer. Only the shards' leaders keep state about it, each for its shards, until a lease
//	    ends. Rejected: holding all shards at one moment. It would promise more, and stop all acks
//	    until the slowest leader has answered.
//	A7  Every write may be repeated: an equal existing object is answered as if it had just been
//	    created. Deleting a piece that is not there is no error.
//	A8  Every pool and queue is shared by account and then by connection: they take turns, and in
//	    pools of four and more no account has all places. Where too many wait, the account with the
//	    most of them loses its newest one. Held snapshots are shared by account and never taken away:
//	    an account may hold as many as there is room for others.
//
//	A9  Changes of attributes have a rate, of which each broker has its part, and users take
//	    turns. Those that messages declare count, too.
//	    They are made on behalf of the connection that asks, whose rights are judged as it asks. No
//	    other broker is asked.
//
//	A10 A View is written on behalf of the client that asks: its rights to what the View reads and
//	    writes are judged as it asks, and its name is kept with the View.
//
//	A11 Records are returned on behalf of the client that asks: those of the subjects that its user
//	    may subscribe to, by the rights that the user has when they are read. The broker of the
//	    client names the user, and the shard's leader judges. Nothing else tells of other records
//	    but gaps between offsets: no count, no failure, no time, and no statistics of segments.
//
// When the process dies in it, the client gets no answer and repeats its request. The package keeps
// no state, and a write is one transaction of etcd.
package admin
