// Package copystate says what a broker knows of its copy of a shard: whether it holds everything that
// the broker ever confirmed, and what the broker does about it if it may not.
//
// A copy is both logs of a shard on one broker. State is a value, and Apply is its only transition: it
// takes what happened (an Event) and returns the next State and the Actions that follow, in order. There
// is no I/O, goroutine or clock. Its caller (package topic) persists the State in the manifest of the
// data log, and carries the actions out.
//
// A copy is Whole as long as there is no doubt about it. The doubts are
//
//	Cut       opening the log cut a torn tail that was never synced
//	Unsynced  the life before confirmed what it had not synced, and did not end in order
//	Damaged   segments can't be read, or are missing
//	Partial   the copy is being fetched anew, or its broker lost it
//
// A copy may have several. Cut is the mildest: such a copy lacks nothing that its broker confirmed, but
// one that was cut by mistake would, so it ranks behind those that were not.
//
// The in-sync set in the shard's key has an entry for each member, a broker in one of its lives. The
// broker writes its own current life there only by Vouch. Nobody is elected who doesn't stand there
// with the life that it is in (package placement).
//
// Invariants:
//
//	S1  A copy that is not open and judged in this life has no State, and its broker doesn't vouch for it.
//	S2  A broker vouches for a Whole copy only, if the set has an entry of it and no other broker leads.
//	S3  A broker begins to lead with a copy that is Whole or Cut; or with any copy, if the shard names the doubt
//	    of that very epoch for that broker. The latter ends all doubts: what the copy holds is what there is.
//	S4  A broker that finds its copy Damaged while it leads goes on as long as no other member vouches for
//	    its copy. As soon as one does it steps down and withdraws.
//	S5  A doubt that arises within a life is kept in the manifest before anything else follows from it. A
//	    doubt found by opening is kept unless it would be found again.
//	S6  Doubts end only because the leader put the copy into the set in an epoch in which it followed and was
//	    not there before, because its segments were repaired (Damaged only), or by S3.
//	S7  A broker that doubts its copy and stands in the set with its current life, or may by now because a
//	    Vouch has no answer, withdraws. Until it has it neither leads nor follows, so it confirms nothing.
//	S8  A leader whose log failed has lost what was under way, and followers may have it. It leads under a
//	    later epoch only.
//
// When the process dies: what the manifest holds is the State that the next life begins with, and
// opening adds what it finds. A crash between an event and its Keep loses what was noted of it and not
// the damage, so the next life meets that again, and it isn't named in the set before it has looked.
package copystate
