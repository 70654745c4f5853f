// Package limiting removes records beyond a limit per subject that no publish has removed: the
// limit was lowered, or the subject's records were not known when one was published. All else is
// removed by the publish itself, with its batch (package topic).
//
// It works on one shard at a time, in the background. When the process dies in it, some records are
// removed and others not; the next leader finds in the state log for which limit that was last done
// (removing.Keeper.Limiting), and does it again.
package limiting
