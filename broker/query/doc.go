// Package query keeps the answers of live queries current. A query is a condition on a subject and
// its attributes; its members are the subjects that match. It is pure: no I/O, no clock.
//
//	cqbs.go     TranslateCQBS: the syntax of CQBS, as CEL
//	query.go    Query: a compiled condition
//	needs.go    which changes a condition may depend on
//	judged.go   what a query that is opened matches, found meanwhile
//	view.go     attributes as filters see them
//	set.go      Set: open queries, subjects, members; what a change changes
//	index.go    index: the conditions that a change may affect
//	idset.go    idSet: a compact set of small numbers
//	history.go  the last changes of attributes
//	resume.go   the changes since a revision, for a client that was away
//	share.go    Share: what one owner may have of a bound of all
//	memory.go   what all takes, and which queries end when it is too much
//
// # How a change is applied
//
//  1. Queries that differ in the order of their clauses only are one group, which is judged once.
//  2. A group has names: attributes whose change may change its verdict. If it looks at the map of
//     attributes as a whole, that is any name. If a subject may match without any of the names, the
//     coming of a subject counts as a change, too.
//  3. A group may have pairs of a name and a value, such as of attributes.room == "410": a subject
//     without one of the pairs does not match. They come from equalities, from "in" with constants,
//     and from bools, in the operands of &&; of || each operand has to have some. The subject
//     itself counts as an attribute.
//  4. After a change of a subject, the groups that name a changed attribute are judged. A group
//     with pairs is judged only if the subject has one of its pairs, before or after the change. So
//     of 10,000 queries for one value each, two are judged.
//  5. A subject that goes leaves the groups that it is a member of, and nothing is judged.
//
// # Invariants
//
//	Q1  The members of a query are the subjects for which its condition is true, and which its user
//	    may see, as judged when they became members or by Refresh after that. A condition that
//	    can't be judged, because an attribute is missing or has another type, is not true.
//	Q2  Deltas turn the members before a call into those after it: a New is of no member, a Del is of
//	    one. Those of a resume may repeat what the client knows.
//	Q3  The deltas of one change are in order of the queries. All results depend on the calls only.
//	Q4  Nothing is told of a subject that the user may not see, except a Del when a right was lost.
//	Q5  A group is a member of the index, and of its subjects' lists, as long as it has an open
//	    query.
//	Q6  The queries, their estimated cost, and the memory of all are bounded. Members come without
//	    being asked for, so beyond the bound the queries of the owner that takes most end.
//	Q7  After Loaded(R), all changes newer than the history's floor are in the history.
//
// # Resuming
//
// A revision is that of a change in etcd. Changes of different subjects come out of order: some by
// links, ahead of the watch. So a client is told the revision that the watch has passed, and may
// know later changes. A resume tells what subjects with later changes are now, unless they were
// that all the time. It needs no state of the client, and any broker can serve it.
//
// The set is rebuilt by the next process: subjects from etcd, queries by the clients, who open them
// again. The next process can't tell what changed before it loaded the subjects, so who resumes
// from before that gets all members.
//
// Rejected:
//
//  1. A history per query. A client that resumes at another broker would find none there.
//  2. Judging all queries that name a changed attribute, as CQBS does. 10,000 queries for a room
//     each are all judged when a subject moves.
//  3. A tree of all conditions (Rete). It shares more between queries that are similar, and a group
//     is judged in some 50 ns.
//  4. Roaring bitmaps. With at most 100,000 subjects a list of numbers or bits take little more,
//     and are 100 lines.
//  5. A wait for room when members take too much memory. The change has happened, and a query that
//     does not tell it is wrong.
package query
