// Package copystate tracks what a broker knows about its copy of a shard: whether the copy holds
// everything that the broker ever confirmed, and what the broker does if it may not.
//
// A copy is both logs of a shard on one broker. State is a value, and Apply is its only transition:
// it takes an Event and returns the next State and the Actions that follow, in order. There is no
// I/O, goroutine or clock. The caller (package topic) persists the State in the manifest of the
// data log, and carries the actions out.
//
// A copy without a doubt is Whole. The doubts are:
//
//	Cut       opening the log cut a torn tail that was never synced
//	Unsynced  the incarnation before confirmed records that it had not synced, and ended abruptly
//	Damaged   segments are unreadable or missing
//	Partial   the copy is being fetched anew, or its broker lost it, or lost its log of cursors, or
//	          the end of a log
//
// A copy may have several doubts. Cut is the mildest: such a copy lacks nothing that its broker
// confirmed. It ranks behind copies without a cut, in case the cut was a mistake.
//
// The in-sync set in the shard's key has an entry for each member: a broker in one of its
// incarnations. A broker writes its own current incarnation there only by Vouch. Only a member with
// its current incarnation in the set is elected (package placement names the exceptions).
//
// Invariants:
//
//	S1  A copy that was not opened and judged in this incarnation has no State, and its broker does
//	    not vouch for it.
//	S2  A broker vouches only for a Whole copy, only if the set has an entry of the broker, and only
//	    if no other broker leads.
//	S3  A broker begins to lead with a copy that is Whole or Cut, or with any copy if the shard
//	    records the doubt of that very epoch for that broker. The latter ends all doubts: from then
//	    on, the copy is what the shard holds.
//	S4  A broker that finds its copy Damaged while it leads goes on as long as no other present
//	    member vouches for its copy. As soon as one does, it withdraws. It leads on until that is
//	    done, so that the shard is served while etcd is away: what it appends is as safe as before,
//	    and what it cannot read it does not answer.
//	S5  A doubt that arises within an incarnation is persisted in the manifest before any other
//	    action. A doubt found by opening is persisted, unless it would be found again.
//	S6  Doubts end when the leader has put the copy into the set in an epoch in which the copy
//	    followed and was not in the set before, and the copy has caught up in that epoch since the
//	    last doubt; when all segments were repaired (Damaged only, so that a copy without the end of
//	    a log, which is Partial as well, still catches up); when the set names the current
//	    incarnation (Cut only); or by S3. A swap that the leader made before a doubt may arrive after
//	    it: it rests on what the copy confirmed then, and ends nothing.
//	S7  A broker withdraws if its copy has a doubt other than Cut, and its current incarnation is in
//	    the set, or may be because a Vouch has no answer. Until it has withdrawn, it neither leads
//	    nor follows, so it confirms nothing. S3 and S4 are the exceptions.
//	S8  A leader whose log failed has lost the appends under way, and followers may have them. It
//	    leads again only under a later epoch, unless the shard has one replica.
//	S9  A copy that can't be opened is reported: a copy in doubt at once, any other one at the second
//	    failure in a row, since the disk may recover. A copy in doubt also withdraws. A leader that
//	    can't open its copy resigns as soon as another member vouches, and otherwise at the second
//	    failure: a member that returns vouches only while nobody leads. A single replica stays the
//	    leader.
//	S10 A copy that is to be set aside as a whole is offered to the leader first. It is set aside
//	    when the leader of the epoch lacks nothing of what the copy has.
//
// When the process dies, the next incarnation starts with the State in the manifest, and opening
// adds what it finds. A crash between an event and its Keep loses the record of the damage, not the
// damage. The next incarnation finds it again, and is not named in the set before it has looked. It
// would not find that a log was made in place of a lost one, or rebuilt without its manifest: the
// first manifest that is written then has the State of Missing, or of ManifestLost.
package copystate
