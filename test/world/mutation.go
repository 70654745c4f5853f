package world

import "slices"

// Mutation removes a rule from the product by replacing text in its sources. It proves that the
// judge finds the missing rule.
type Mutation struct {
	Name  string
	Edits []edit
	// Faults are the faults that reveal it; nil: all.
	Faults []string
	// Found are the classes of faults that it needs.
	Found []Class
	// Kinds and Readers are those of the Topics that it needs; nil: any.
	Kinds, Readers []string
	// Says is a part of the judge's expected message; empty: any message.
	Says string
}

// mutations returns all mutations. Each is found in a few worlds. A change of text that a mutation
// replaces has to change the mutation, too.
func mutations() []Mutation {
	return slices.Concat(mutationsOfReplication, mutationsOfForwarding, mutationsOfKinds, mutationsOfFindings)
}

// mutationsOfFindings remove the first rules of the product, and the fixes since.
var mutationsOfFindings = []Mutation{
	{Name: "R2: an ack needs nobody but the leader", Edits: []edit{
		{"broker/replica/leader.go", "for _, m := range l.shard.InSync {\n\t\t\thigh = min(", "for _, m := range l.shard.InSync[:0] {\n\t\t\thigh = min("},
		{"broker/replica/leader.go", "for _, m := range l.unanswered {\n\t\t\thigh = min(", "for _, m := range l.unanswered[:0] {\n\t\t\thigh = min("}},
		Faults: []string{"kill one", "cut in two"}},
	{Name: "R3: members that leave don't count while the swap is under way", Edits: []edit{
		{"broker/replica/leader.go", "for _, m := range l.shard.InSync {\n\t\t\thigh = min(", "for _, m := range l.shard.InSync {\n\t\t\tif l.unanswered != nil {\n\t\t\t\tbreak\n\t\t\t}\n\t\t\thigh = min("}},
		Faults: []string{"cut off from etcd", "cut in two", "cut off one", "kill one"}},
	{Name: "R2: what is appended counts as synced", Edits: []edit{
		{"broker/log/commit.go", "\tif err := s.handle.f.Sync(); err != nil {\n\t\treturn d.fail(err)\n\t}\n\tif s.newName {", "\tif s.newName {"},
		{"broker/log/commit.go", "\treturn d.volume.Sync()\n", "\treturn nil\n"}},
		Faults: []string{"cut power of all", "cut power"}},
	{Name: "R5: followers truncate by where logs end", Edits: []edit{
		{"broker/replica/lineage.go", "shared, found := follower.End, len(follower.Epochs) == 0", "shared, found := min(follower.End, leader.End), true"}},
		Faults: []string{"kill", "cut in two", "cut power", "stop in order"}},
	{Name: "P2: a leader is named under the same epoch", Edits: []edit{
		{"broker/placement/elect.go", "after.Epoch = p.next(it)\n\tafter.Leader, after.InSync = leader, slices.Clone(it.InSync)", "after.Leader, after.InSync = leader, slices.Clone(it.InSync)"}},
		Faults: []string{"kill one", "cut in two", "stop in order"}},
	{Name: "C5: an in-sync set is written blindly", Edits: []edit{
		{"broker/coordination/shard_swap.go", `[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", s.before.Revision)}`, `[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), ">", 0)}`}},
		Faults: []string{"late watches", "kill one", "drain leadership", "cut in two"}},
	{Name: "deduplication: ids of messages are forgotten", Edits: []edit{
		{"broker/dedup/window.go", "offset, ok = w.known[h]\n", "ok = false\n"}},
		Faults: []string{"kill", "cut in two"}},
	{Name: "deduplication: an id that another replica may know is taken for new", Edits: []edit{
		{"broker/topic/elsewhere.go", "for _, u := range s.ids.Unread() {", "for _, u := range s.ids.Unread()[:0] {"}},
		Faults: []string{"copies are damaged in different places"}, Kinds: []string{"plain"}, Says: "stands at"},
	{Name: "R6: a new leader is read before it knows the watermark", Edits: []edit{
		{"broker/topic/shard_leader.go", "if !l.Readable() {\n\t\t\treturn 0\n\t\t}\n\t\ts.high.Raise(l.High(replica.Data))", "s.high.Raise(s.end)"}},
		Faults: []string{"kill", "cut in two", "kill one"}},
	{Name: "A1: a lost copy is taken for an empty one", Edits: []edit{
		{"broker/copystate/apply.go", "\tif !counted {\n\t\treturn State{}\n", "\tif true {\n\t\treturn State{}\n"}},
		Faults: []string{"a copy is lost", "kill", "kill all"}, Found: []Class{LostCopies}},
	{Name: "A2: an unproven tail is not written again", Edits: []edit{
		{"broker/log/recover_last.go", "err = rewrite(f, s, found)\n", "_ = rewrite\n"}},
		Faults: []string{"syncs fail everywhere, and power fails later"}, Says: "acknowledged"},
	// Records are stamped with this time, and their ages are measured by it.
	{Name: "A3: the wall clock decides, and not the median of all", Edits: []edit{
		{"broker/clock/clock.go", "v := c.judge.Verdict()\n\tc.off.Store(v.Off)", "v := c.judge.Verdict()\n\tv.Off = r.Wall - r.Mono\n\tc.off.Store(v.Off)"}},
		Faults: []string{"clock jumps", "kill one", "stop in order"}, Found: []Class{JumpingClocks}},
	{Name: "A3: records are deleted by age while the time is in doubt", Edits: []edit{
		{"broker/retention/keeper.go", "pause := policy.Age > 0 && s.Clock.InDoubt()\n", "pause := false\n"}},
		Faults: []string{clocksAhead}, Found: []Class{JumpingClocks}, Kinds: []string{"plain"}, Says: "so old that it may go"},
	{Name: "A3: records are compacted while the time is in doubt", Edits: []edit{
		{"broker/upkeep/compact.go", "len(open) == 0 || u.config.Clock.InDoubt() {", "len(open) == 0 {"}},
		Faults: []string{clocksAhead}, Found: []Class{JumpingClocks}, Kinds: []string{"compacted"}, Says: "was taken by compaction"},
	{Name: "A3: message ids in doubt are taken for duplicates", Edits: []edit{
		{"broker/dedup/read.go", "if r.Window > 0 && !c.Verdict().Elapsed {", "if false {"},
		{"broker/dedup/window.go", "\tif !c.Verdict().Elapsed {\n", "\tif false {\n"}},
		Faults: []string{clocksBack}, Found: []Class{JumpingClocks}, Kinds: []string{"plain"}, Says: "acknowledged as a duplicate"},
	// Reads of the last record and snapshots wait by another rule. The mutation "A10: a deposed
	// leader takes snapshots" switches that off.
	{Name: "A4: refusals don't wait until the leader is confirmed", Edits: []edit{
		{"broker/acking/pending.go", "case p.Round <= round:", "case true:"}},
		Faults: []string{"cut off one", "cut in two", "cut one way"}, Found: []Class{StaleAnswers}, Readers: []string{"moving"}, Says: "order explains"},
	{Name: "A5: a leader without confirmations is not bounded", Edits: []edit{
		{"broker/ahead/ahead.go", "return a.bytes.Load() > times*bound.Bytes || a.records.Load() > times*bound.Records", "return false"}},
		Faults: []string{"cut off one", "cut in two"}, Readers: []string{"flood"}, Says: "is to push back"},
	{Name: "A6: nobody notices that etcd was restored", Edits: []edit{
		{"broker/coordination/history.go", "\t\treturn generation, seen.compare(marks, generation, done)\n", "\t\t_ = seen\n\t\treturn generation, nil\n"},
		{"broker/coordination/history.go", "return generation, &RestoredError{fmt.Sprintf(\"it is not at", "return generation, nil\n\t\t\treturn generation, &RestoredError{fmt.Sprintf(\"it is not at"}},
		Faults: []string{"etcd is restored", "kill one", "kill", "drain leadership", "cut off one"}, Found: []Class{RestoredEtcd}},
	{Name: "A6: a restored shard is led before all of its replicas are compared", Edits: []edit{
		{"broker/placement/restored.go", "case len(away) > 0 && !unclean:", "case len(away) > 1 && !unclean:"}},
		Faults: []string{"etcd is restored", "kill one", "kill", "cut off one"}, Found: []Class{RestoredEtcd}, Kinds: []string{"one in sync"}},
	{Name: "A6: a shard that a restored etcd lacks begins with epoch 1 again", Edits: []edit{
		{"broker/placement/new.go", "	if p.facts.Generation > 0 {\n		s.Epoch", "	if false {\n		s.Epoch"}},
		Faults: []string{"etcd forgets a shard whose brokers are away"}, Found: []Class{RestoredEtcd}, Kinds: []string{"plain"}, Says: "differ"},
	{Name: "A6: a restored shard is led before brokers that are alive have registered again", Edits: []edit{
		{"broker/placement/restored.go", "func (p *planner) unregistered(it item) bool {\n", "func (p *planner) unregistered(it item) bool {\n	if true {\n		return false\n	}\n"}},
		Faults: []string{"etcd forgets a shard whose brokers are late"}, Found: []Class{RestoredEtcd}, Kinds: []string{"plain"}, Says: "acknowledged or read"},
	{Name: "A6: a generation does not settle", Edits: []edit{
		{"broker/coordination/state_follower.go", "next.Settling = f.settling == f.generation && f.generation > 0\n", "next.Settling = false\n"}},
		Faults: []string{"etcd forgets a shard whose brokers are late"}, Found: []Class{RestoredEtcd}, Kinds: []string{"plain"}, Says: "acknowledged or read"},
	{Name: "A7: a broker with a hung disk keeps leadership", Edits: []edit{
		{"broker/stall/watch.go", "limit := c.Limit\n", "limit := time.Duration(0)\n"}},
		Faults: []string{"disk hangs"}, Found: []Class{HungDisks}},
	// A flipped bit below a sync point needs this rule and the next one to be gone: the bitmap, too,
	// tells that nothing was torn there. A sector of zeros needs this one alone. Later markers, the
	// journal and the manifest prove the same sync points, so none of the three is missed alone; the
	// journal is, where no marker follows (see below). The manifest proves records once more when
	// their end is compared with where the log ends: that rule (l.end < m.Durable) hides behind this
	// one, and is taken away under A10.
	{Name: "A8: proven bytes are taken for a torn write", Edits: []edit{
		{"broker/log/damage.go", "proven := !c.last || behind.proven || s.end < c.floor || s.pos < c.point.pos\n", "proven := !c.last\n"}},
		Faults: []string{"a sector of an older round is lost, and others are late"}, Kinds: []string{"plain"}, Says: "acknowledged or read"},
	{Name: "A8: a flipped bit in the last round is taken for a torn write", Edits: []edit{
		{"broker/log/damage.go", "\t\tif torn {\n\t\t\tc.leaveEmptyRun()", "\t\tif torn || true {\n\t\t\tc.leaveEmptyRun()"}},
		Faults: []string{"a bit of the last round flips, and others are late"}, Kinds: []string{"plain"}, Says: "acknowledged or read"},
	{Name: "A8: the last round of an idle disk is not proven", Edits: []edit{
		{"broker/log/commit.go", "\t\t\td.journal.close(time.Now(), d.openLogs)\n", ""}},
		Faults: []string{"a sector is lost that was idle, and others are late"}, Kinds: []string{"plain"}, Says: "acknowledged or read"},
	{Name: "A8: a cut copy vouches", Edits: []edit{
		{"broker/copystate/apply.go", "if first && e.Counted && e.Torn {", "if false && e.Torn {"}},
		Faults: []string{"a sector of the leader's last round is lost"}, Kinds: []string{"plain"}, Says: "acknowledged or read"},
	{Name: "A8: a cut copy ranks as a whole one", Edits: []edit{
		{"broker/placement/elect.go", "\t\treturn cut\n\tcase reported && !said.Cut:", "\t\treturn returned\n\tcase reported && !said.Cut:"}},
		Faults: []string{"a sector of the leader's last round is lost"}, Kinds: []string{"plain"}, Says: "acknowledged or read"},
	// Two more rules are against that: a copy is in doubt that ends before what was durable when it
	// was closed (Short), and a leader drops a member that has less than what is safe (lostRecords).
	// Both act later than this one and hide behind it: with it the copy leaves the set by itself.
	{Name: "A9: a follower in memory whose log failed doesn't doubt its copy", Edits: []edit{
		{"broker/copystate/apply.go", "\tif e.Durability != log.Memory {\n", "\tif true {\n"}},
		Faults: []string{"a write fails", "slow way", "kill one"}, Found: []Class{FailedWrites}, Kinds: []string{"memory"}},
	{Name: "A9: a leader never forgets a sender", Edits: []edit{
		{"broker/topic/keep.go", "\t\ts.origins.Expire(before)\n", ""}},
		Faults: []string{"kill one"}, Readers: []string{"silence"}, Says: "that were silent"},
	// By either rule alone the copy is damaged already, so both are taken away.
	{Name: "A10: a log without its end is taken for a whole one", Edits: []edit{
		{"broker/log/recover.go", "if r.End > 0 || !o.there(r) && r.Base < m.Durable {\n", "if r.End > 0 {\n"},
		{"broker/log/recover.go", "\tif l.end < m.Durable {\n", "\tif false {\n"}},
		Faults: []string{"the end of a log is lost", "kill", "kill all"}, Found: []Class{LostEnds}},
	{Name: "A10: the manifest doesn't list a segment with its first records", Edits: []edit{
		{"broker/log/commit.go", "\tnext.Durable = max(next.Durable, safe)\n", "\t_ = safe\n"}},
		Faults: []string{"the end of a log is lost", "cut power", "cut power of all"}, Found: []Class{LostEnds}},
	{Name: "A10: a deposed leader takes snapshots and answers with its last record", Edits: []edit{
		{"broker/confirm/readers.go", "if l.Confirmed() >= round {", "if l.Confirmed() >= round || true {"}},
		Faults: []string{"cut off one", "cut in two", "cut one way"}, Found: []Class{StaleAnswers}},
	// Opening a compressed segment of one block reads all of it, so nothing is compressed here.
	{Name: "A11: scrubbing begins an hour after a start", Edits: []edit{
		{"broker/upkeep/upkeep.go", "\tstartAfter = time.Minute\n", "\tstartAfter = time.Hour\n"}},
		Faults: []string{"kill one"}, Kinds: []string{"plain"}, Readers: []string{"decay"}},
	{Name: "A11: a crash makes no segment due for a scrub", Edits: []edit{
		{"broker/scrub/plan.go", "unsure := !began.IsZero() && known(s).Before(began)\n", "unsure := false\n"},
		{"broker/upkeep/upkeep.go", "u.rounds(ctx, u.config.After, compressRest, u.compress)", "u.rounds(ctx, compressRest, compressRest, u.compress)"}},
		Faults: []string{"kill one"}, Kinds: []string{"plain"}, Readers: []string{"decay"}},
}
