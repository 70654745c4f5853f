package world

// mutationsOfReplication remove rules of the in-sync set, of elections and of truncation.
var mutationsOfReplication = []Mutation{
	{Name: "R1: a follower continues under an older epoch", Edits: []edit{
		{"broker/replica/following.go", "if f.ended || shard.Epoch < epoch ||", "if true || f.ended || shard.Epoch < epoch ||"}},
		Faults: []string{"late watches", "cut from etcd one way", "cut off from etcd", "drain leadership", "kill one"}},
	{Name: "R1: a restarted leader continues its epoch", Edits: []edit{
		{"broker/topic/view.go", "if me, ok := state.Broker(self); ok {\n\t\tv.lead = slices.Contains(v.shard.InSync, coordination.Replica{Broker: self, Incarnation: me.Incarnation})",
			"if _, ok := state.Broker(self); ok {\n\t\tv.lead = true"}},
		Faults: []string{"cut power", "cut power of all", "late watches", "stop in order"}},
	{Name: "R1: a replica is removed under the same epoch", Edits: []edit{
		{"broker/placement/replicas.go", "c.Epoch = p.next(c.item)", "c.Epoch = c.item.Epoch"}},
		Faults: []string{"a replica comes back"}},
	{Name: "R2: an ack needs some of the set", Edits: []edit{
		{"broker/replica/leader.go", "for _, m := range l.shard.InSync {\n\t\t\thigh = min(", "for _, m := range l.shard.InSync[:min(len(l.shard.InSync), 2)] {\n\t\t\thigh = min("}},
		Faults: []string{"kill one", "slow disk", "slow way", "cut in two"}},
	{Name: "R3: a joining member doesn't count while the swap is under way", Edits: []edit{
		{"broker/replica/leader.go", "for _, m := range l.unanswered {\n\t\t\thigh = min(", "for _, m := range l.unanswered[:0] {\n\t\t\thigh = min("}},
		Faults: []string{"kill one", "a joiner is cut off"}},
	{Name: "R3: a swap without an answer is taken for a failed one", Edits: []edit{
		{"broker/replica/leader.go", "\tif shard == nil || shard.Epoch != l.shard.Epoch || shard.Revision < l.shard.Revision {\n", "\tif shard == nil {\n\t\tl.unanswered = nil\n\t}\n\tif shard == nil || shard.Epoch != l.shard.Epoch || shard.Revision < l.shard.Revision {\n"}},
		Faults: []string{"kill one", "a joiner is cut off"}},
	{Name: "R3: a set of one is enough", Edits: []edit{
		{"broker/replica/leader.go", "if len(stay) < int(l.min) {", "if len(stay) < 1 {"},
		{"broker/replica/leader.go", "return len(l.shard.InSync) >= int(l.min) }", "return len(l.shard.InSync) >= 1 }"}},
		Faults: []string{"cut in two", "bits flip", "kill"}, Found: []Class{FlippedBits}},
	{Name: "R4: anyone can be elected", Edits: []edit{
		{"broker/placement/elect.go", "\tfor _, m := range it.InSync {\n\t\ts := p.standing(it, m)\n\t\tif s < returned {", "\tfor _, id := range it.Replicas {\n\t\tm, s := coordination.Replica{Broker: id}, present\n\t\tif p.alive[id] == nil {"},
		{"broker/placement/elect.go", "p.name(it, best, LeaderElected)", "p.nameAlone(it, best, LeaderElected)"}},
		Faults: []string{"kill", "cut in two"}},
	{Name: "R4: a copy in doubt vouches", Edits: []edit{
		{"broker/copystate/apply.go", "if first && e.Counted && e.Durability != log.Synced && !e.Orderly {", "if false && first && e.Counted && e.Durability != log.Synced && !e.Orderly {"}},
		Faults: []string{"kill one", "kill", "cut power"}, Kinds: []string{"memory", "replicated"}},
	{Name: "R5: followers truncate to the watermark", Edits: []edit{
		{"broker/replica/following.go", "\t\ta.logs[p] = LineageOf(lg)\n", "\t\ta.logs[p] = LineageOf(lg)\n\t\tif high := f.high[p].Load(); high > 0 && high < a.logs[p].End {\n\t\t\t_, _, _ = lg.TruncateTo(high, 0)\n\t\t\ta.logs[p] = LineageOf(lg)\n\t\t}\n"}},
		Faults: []string{"kill one", "drain leadership", "kill"}},
	{Name: "R5: the leader compares one epoch only, shared or not", Edits: []edit{
		{"broker/replica/lineage.go", "\tfor i := len(follower.Epochs) - 1; i >= 0 && !found; i-- {\n",
			"\tfor j := len(leader.Epochs) - 1; j >= 0 && !found; j-- {\n\t\tif leader.Epochs[j].Epoch <= follower.Epochs[len(follower.Epochs)-1].Epoch {\n\t\t\tshared, found = min(follower.End, leader.endOf(j)), true\n\t\t}\n\t}\n\tfor i := len(follower.Epochs) - 1; i >= 0 && !found; i-- {\n"}},
		Faults: []string{"kill", "cut in two", "cut power", "drain leadership"}},
	{Name: "R6: uncommitted records are read", Edits: []edit{
		{"broker/topic/shard_leader.go", "\tend = s.high.Load()\n\tstart = max(s.data.Start(), ", "\t_, end, _ = s.data.Offsets()\n\tstart = max(s.data.Start(), "}},
		Faults: []string{"cut in two", "cut off one", "kill one"}},
	{Name: "R9: a copy that lost committed records is not reported", Edits: []edit{
		{"broker/copystate/apply.go", "\tif e.Damage != \"\" {\n\t\ts = s.doubt(Damaged", "\tif false {\n\t\ts = s.doubt(Damaged"},
		{"broker/copystate/apply.go", "\ts = s.doubt(Damaged, e.Reason, e.Epoch)\n\ts.failedEpoch", "\ts.failedEpoch"}},
		Faults: []string{"bits flip", "kill one"}, Found: []Class{FlippedBits}},
	{Name: "R10: a copy that lacks segments follows before it has fetched them", Edits: []edit{
		{"broker/copystate/apply.go", "\tcase s.doubts&Damaged != 0:\n\t\treturn s, []Action{Repair}\n", "\tcase s.doubts&Damaged != 0:\n\t\treturn s, []Action{Follow}\n"}},
		Faults: []string{"bits flip", "kill one"}, Found: []Class{FlippedBits}},
	{Name: "set aside: committed records that a contradicted copy drops are deleted", Edits: []edit{
		{"broker/replica/following.go", "if known := min(f.high[p].Load(), end); known > from {", "if known := min(f.high[p].Load(), end); false && known > from {"}},
		Faults: []string{"a copy that was rolled back leads"}, Kinds: []string{"plain"}, Says: "nor set aside there"},
	{Name: "damage: records that no replica has are not given up", Edits: []edit{
		{"broker/replica/giveup.go", "give = l.leader.NobodyBeyond(p) > 0", "give = false"}},
		Faults: []string{"a leader alone has its copy, and it is damaged"}, Kinds: []string{"plain"}, Says: "stuck"},
	{Name: "damage: records are given up that an absent replica has", Edits: []edit{
		{"broker/replica/leader.go", "\t\tif f == nil || f.gone || f.stuck[p] == 0 {\n\t\t\treturn 0\n", "\t\tif f == nil || f.gone {\n\t\t\tcontinue\n\t\t}\n\t\tif f.stuck[p] == 0 {\n\t\t\treturn 0\n"}},
		Faults: []string{"a leader's copy is damaged while a whole one is away"}, Kinds: []string{"plain"}},
}

// mutationsOfForwarding remove rules of forwarding to the leader (package sender).
var mutationsOfForwarding = []Mutation{
	{Name: "F3: a leader accepts messages behind a gap, and the missing ones later", Edits: []edit{
		{"broker/topic/judge.go", "\tcase seq > o.Last+1:\n", "\tcase false:\n"},
		{"broker/topic/judge.go", "\t\to.Last = max(o.Last, seq)\n\t\tin.refuse(s.shard, &publish.ForgottenError{Topic: s.shard.name})\n",
			"\t\treturn numberNew\n"}},
		Faults: []string{"kill one", "drain leadership"}, Readers: []string{"flood"}, Says: "which its connection published later"},
	{Name: "F4: followers don't keep numbers of messages", Edits: []edit{
		{"broker/topic/follow.go", "\tw.origins.Note(b, forward.Mono())\n", "\t_ = forward.Mono\n"}},
		Faults: []string{"kill one", "drain leadership", "cut in two"}, Says: "stands at"},
	{Name: "F4: batches don't name the numbers of their messages", Edits: []edit{
		{"broker/topic/append.go", "\tin.sign(in.from.Source, in.from.Floor)\n", ""}},
		Faults: []string{"kill one", "drain leadership", "cut in two"}, Says: "stands at"},
	{Name: "F4: a leader keeps messages of which it can't know whether they were kept", Edits: []edit{
		{"broker/topic/judge.go", "case seq > o.Last && (o.Fresh(seq) || s.origins.Knows(", "case seq > o.Last && (true || s.origins.Knows("},
		{"broker/topic/judge.go", "\t\to.Last = max(o.Last, seq)\n\t\tin.refuse(s.shard, &publish.ForgottenError{Topic: s.shard.name})\n",
			"\t\treturn numberNew\n"}},
		Faults: []string{"kill one", "drain leadership", "cut in two", "kill"}, Says: "stands at"},
	{Name: "F4: numbers in a damaged batch are taken for new", Edits: []edit{
		{"broker/forward/origins.go", "\t\tfrom.inLog = false\n", "\t\t_ = from\n"}},
		Faults: []string{"copies are damaged in different places"}, Kinds: []string{"plain"}, Says: "stands at"},
	{Name: "F6: pending answers are given when leadership ends", Edits: []edit{
		{"broker/acking/shard.go", "if p := s.unreplicated[n]; p.End > high {", "if p := s.unreplicated[n]; false && p.End > high {"}},
		Faults: []string{"kill one", "drain leadership", "cut in two", "cut off one"}},
}

// mutationsOfKinds remove promises of Topics that are not plain.
var mutationsOfKinds = []Mutation{
	{Name: "shards: a subject's messages go to another shard", Edits: []edit{
		{"broker/publish/partition.go", "fnvPrime  = 1099511628211", "fnvPrime  = 1099511628213"}},
		Kinds: []string{"sharded"}, Says: "belongs to"},
	{Name: "Replicated: an ack needs nobody but the leader", Edits: []edit{
		{"broker/replica/leader.go", "for _, m := range l.shard.InSync {\n\t\t\thigh = min(", "for _, m := range l.shard.InSync[:0] {\n\t\t\thigh = min("},
		{"broker/replica/leader.go", "for _, m := range l.unanswered {\n\t\t\thigh = min(", "for _, m := range l.unanswered[:0] {\n\t\t\thigh = min("}},
		Faults: []string{"cut power", "cut in two"}, Kinds: []string{"replicated"}},
	{Name: "Memory: an ack needs nobody but the leader", Edits: []edit{
		{"broker/replica/leader.go", "for _, m := range l.shard.InSync {\n\t\t\thigh = min(", "for _, m := range l.shard.InSync[:0] {\n\t\t\thigh = min("},
		{"broker/replica/leader.go", "for _, m := range l.unanswered {\n\t\t\thigh = min(", "for _, m := range l.unanswered[:0] {\n\t\t\thigh = min("}},
		Faults: []string{"kill one", "cut in two"}, Kinds: []string{"memory"}},
	{Name: "minInSync 1: members that leave don't count while the swap is under way", Edits: []edit{
		{"broker/replica/leader.go", "for _, m := range l.shard.InSync {\n\t\t\thigh = min(", "for _, m := range l.shard.InSync {\n\t\t\tif l.unanswered != nil {\n\t\t\t\tbreak\n\t\t\t}\n\t\t\thigh = min("}},
		Faults: []string{"cut off from etcd", "cut in two", "cut off one", "kill one"}, Kinds: []string{"one in sync"}},
	{Name: "compaction: the newest record of a subject is deleted, too", Edits: []edit{
		{"broker/log/compact.go", "return !known || r.Offset >= newest", "return !known || r.Offset > newest"}},
		Faults: []string{"kill one"}, Kinds: []string{"compacted"}},
	{Name: "compaction: young records are deleted", Edits: []edit{
		{"broker/upkeep/compact.go", "\t\tBefore: u.config.Clock.Time().Add(-max(window, when.Age))}\n", "\t\t}\n\t_ = window\n"}},
		Faults: []string{"kill one"}, Kinds: []string{"compacted"}, Says: "was taken by compaction"},
	{Name: "retention: records are deleted before a limit is exceeded", Edits: []edit{
		{"broker/log/retention.go", "known && now.Sub(newest) > policy.Age", "known && now.Sub(newest) > policy.Age/2"},
		{"broker/log/retention.go", "bytes-s.Bytes >= policy.Bytes", "bytes-s.Bytes >= policy.Bytes/8"},
		{"broker/log/retention.go", "end-s.End >= policy.Messages", "end-s.Base >= policy.Messages"}},
		Faults: []string{"kill one"}, Kinds: []string{"retained"}, Says: "keep"},
	{Name: "repair: a copy is set aside though its leader lacks what it has", Edits: []edit{
		{"broker/copystate/apply.go", "case s.Anew() && !e.Unwanted:\n", "case false:\n"}},
		Faults: []string{"a whole copy must be fetched anew beside a damaged leader"}, Kinds: []string{"plain"}, Says: "one copy had it"},
	{Name: "retention: nothing is deleted", Edits: []edit{
		{"broker/log/retention.go", "\t\tplan.Start = max(plan.Start, s.End)\n", ""}},
		Faults: []string{"kill one"}, Kinds: []string{"retained"}, Says: "than it is to keep"},
	{Name: "S1: an ack is answered before it is stored", Edits: []edit{
		{"broker/subscription/cursor_store.go", "\tk.waiters = append(k.waiters, done)\n", "\tgo done(nil)\n"}},
		Faults: []string{"kill one", "kill all", "cut power"}, Readers: []string{"subscription"}, Says: "is delivered again"},
	{Name: "S2: the next leader skips undelivered records", Edits: []edit{
		{"broker/subscription/cursor_store.go", "\ts.handle, s.cursor = r.handle, r.cursor\n", "\ts.handle, s.cursor = r.handle, r.cursor\n\tif end > 0 {\n\t\ts.cursor.offset = max(s.cursor.offset, end-1)\n\t}\n"}},
		Faults: []string{"kill one", "drain leadership"}, Readers: []string{"subscription"}, Says: "never delivered"},
	{Name: "S3: cursors are compared with the end of the log when they are read", Edits: []edit{
		{"broker/subscription/journal.go", "\t\tif e.Epoch > epoch {\n", "\t\tif false {\n"}},
		Faults: []string{"kill all", "cut power of all"}, Kinds: []string{"memory", "replicated"}, Readers: []string{"subscription"}, Says: "never delivered"},
	{Name: "S10: a work queue loses what waits for its ack", Edits: []edit{
		{"broker/subscription/span.go", "\t\t\tpending := i < len(c.pending.list) && ", "\t\t\tpending := false && i < len(c.pending.list) && "}},
		Faults: []string{"kill one", "drain leadership"}, Kinds: []string{"queue"}},
	{Name: "S10: what is acknowledged stays in a work queue", Edits: []edit{
		{"broker/subscription/release.go", "\t\tr.acked = merge(append(settled, r.acked...))\n", "\t\t_ = settled\n"}},
		Faults: []string{"kill one", "drain leadership"}, Kinds: []string{"queue"}, Says: "whose ack or deletion was answered"},
	{Name: "S6: a log without its end is whole when what is known of it was fetched", Edits: []edit{
		{"broker/copystate/apply.go", "\tif e.EndLost {\n", "\tif false {\n"}},
		Faults: []string{"the end of a log is lost beside a leader without etcd"}, Kinds: []string{"plain"}, Says: "acknowledged or read"},
	{Name: "interest: a record goes when one Subscription has acknowledged it", Edits: []edit{
		{"broker/subscription/release.go", "\t\tunfiltered = true\n\t\tsome = some.without(needed)\n", "\t\tif !unfiltered {\n\t\t\tsome = some.without(needed)\n\t\t}\n\t\tunfiltered = true\n"}},
		Faults: []string{"kill one"}, Kinds: []string{"interest"}, Says: "nobody acknowledged"},
	{Name: "rollups: one of all messages removes nothing", Edits: []edit{
		{"broker/topic/displace.go", "\t\td.All = true\n", ""}},
		Faults: []string{"kill one"}, Kinds: []string{"rollups"}, Says: "a rollup of it was acknowledged"},
	{Name: "batches: one whose first messages went to another broker is committed", Edits: []edit{
		{"broker/batching/staging.go", "\tif part.Sequence != 1 {\n", "\tif false {\n"},
		{"broker/batching/staging.go", "\tcase part.Sequence != o.last+1, part.Sequence == 1 &&", "\tcase part.Sequence == 1 &&"}},
		Faults: []string{"kill one"}, Kinds: []string{"batches"}, Says: "atomic batch"},
	{Name: "fast batches: the leader keeps a message behind a refused one", Edits: []edit{
		{"broker/topic/judge.go", "if in.why == nil && !o.Refused(m.Behind) {", "if in.why == nil {"}},
		Faults: []string{"kill one"}, Kinds: []string{"fast batches"}, Says: "of it is missing before it"},
	{Name: "fast batches: a gap is taken, ok or not", Edits: []edit{
		{"broker/batching/fast.go", "\t\tif !b.gapOK || p.Sequence <= b.last {\n", "\t\tif p.Sequence <= b.last {\n"}},
		Faults: []string{"kill one"}, Kinds: []string{"fast batches"}, Says: "was never published"},
	{Name: "fast batches: a message is settled when it is sent", Edits: []edit{
		{"broker/batching/fast.go", "b.settled < b.said+every {", "b.last < b.said+every {"},
		{"broker/batching/fast.go", "\tb.said += (b.settled - b.said) / every * every\n", "\tb.said += (b.last - b.said) / every * every\n"}},
		Faults: []string{"kill one", "cut off one"}, Kinds: []string{"fast batches"}, Says: "of the fast batch"},
	{Name: "mirrors: each of several shards mirrors the first one", Edits: []edit{
		{"broker/sourcing/streams.go", "at.shards(), at.Number)", "at.shards(), 0)"}},
		Faults: []string{"kill one"}, Kinds: []string{"mirrors"}, Says: "of its source"},
	{Name: "mirrors: messages behind a gap are appended without it", Edits: []edit{
		{"broker/sourcing/batch.go", "\t\tif b.Sequences[i] != b.Sequences[i-1]+1 {\n", "\t\tif false {\n"}},
		Faults: []string{"kill one"}, Kinds: []string{"mirrors", "deletions"}, Says: "that it mirrors"},
	{Name: "TTLs: a message goes after a quarter of its time", Edits: []edit{
		{"broker/expiring/rules.go", "\treturn published + int64(ttl)\n", "\treturn published + int64(ttl)/4\n"}},
		Faults: []string{"kill one"}, Kinds: []string{"ttls"}, Says: "nor has it expired"},
	{Name: "TTLs: a new leader doesn't read from batches when messages expire", Edits: []edit{
		{"broker/removing/load.go", "eachCarried(b, l.addCarried, l.expireCarried,", "eachCarried(b, l.addCarried, func(removal.Expiry) {},"}},
		Faults: []string{"kill one", "drain leadership"}, Kinds: []string{"ttls"}, Says: "which expires after"},
	{Name: "schedules: a message is published before its time", Edits: []edit{
		{"broker/expiring/rules.go", "\tif due = max(due, 1); at == 0 {\n", "\tif due = max(due-int64(4*time.Second), 1); at == 0 {\n"}},
		Faults: []string{"kill one"}, Kinds: []string{"schedules"}, Says: "before its time"},
	{Name: "schedules: one is removed when its message is published, kept or not", Edits: []edit{
		{"broker/expiring/firing.go", "\t\tp.fired[offset] = f\n", "\t\tp.fired[offset] = f\n\t\texpired = append(expired, offset)\n"}},
		Faults: []string{"kill one", "drain leadership"}, Kinds: []string{"schedules"}, Says: "was never published"},
	{Name: "sources: a stream that was made anew is copied from where the former one was", Edits: []edit{
		{"broker/sourcing/fetcher.go", "f.origin, f.next, f.epoch, f.reached, f.needs, f.skipped = origin, 0, 0, false, 0, 0\n", "f.origin = origin\n"},
		{"broker/sourcing/fetcher.go", "\tif come.Sequence > 0 && come.Origin == origin {\n", "\tif come.Sequence > 0 {\n"}},
		Faults: []string{"a Topic is deleted"}, Kinds: []string{"sources"}, Says: "of its source"},
	{Name: "sources: a new leader doesn't read how far they have come", Edits: []edit{
		{"broker/removing/load.go", "func(data []byte) error { return l.progress(data, true) }", "func([]byte) error { return nil }"}},
		Faults: []string{"kill one", "drain leadership"}, Kinds: []string{"sources"}, Says: "stands at"},
	{Name: "sources: each of several shards copies all", Edits: []edit{
		{"broker/sourcing/share.go", "\tif s == nil {\n\t\treturn true\n", "\tif true {\n\t\treturn true\n"}},
		Faults: []string{"kill one"}, Kinds: []string{"sources"}, Says: "belongs into shard"},
	{Name: "counters: a new leader counts from zero", Edits: []edit{
		{"broker/counting/totals.go", "\tt.want(offset)\n\treturn Total{}, true, nil\n", "\treturn Total{}, false, nil\n"}},
		Faults: []string{"kill one", "drain leadership"}, Kinds: []string{"counters"}, Says: "has the total"},
	{Name: "views: results are written without a look at the last ones", Edits: []edit{
		{"broker/viewing/owner.go", "\t\t\t\tt.ends[at] = end\n", "\t\t\t\t_ = end\n"}},
		Faults: []string{"kill one", "drain leadership"}, Kinds: []string{"views"}, Says: "results, want"},
	{Name: "views: alerts are written without a look at the last ones", Edits: []edit{
		{"broker/trigger/set.go", "s.set(k, &state{last.Serial, last.Raised, last.End})", "_ = k"}},
		Faults: []string{"kill one", "drain leadership"}, Kinds: []string{"views"}, Says: "disagree with a recount"},
	{Name: "views: a checkpoint names an earlier offset than that it has", Edits: []edit{
		{"broker/view/encode.go", "b := appendTime(appendNumber(nil, s.next), s.watermark)\n\tb = s.done", "b := appendTime(appendNumber(nil, s.next-min(s.next, 20)), s.watermark)\n\tb = s.done"}},
		Faults: []string{"kill one", "drain leadership"}, Kinds: []string{"views"}, Says: "disagree with a recount"},
	{Name: "views: V4: shards are told what is done before it is written", Edits: []edit{
		{"broker/viewing/owner.go", "\t\tif err := o.write(ctx, t, some); err != nil {\n\t\t\treturn err\n\t\t}\n", "\t\t_ = o.write(ctx, t, some)\n"}},
		Faults: []string{"kill one", "drain leadership", "cut off one", "late watches"}, Kinds: []string{"views"}, Says: "disagree with a recount"},
	{Name: "views: a new owner leaves out the first result", Edits: []edit{
		{"broker/viewing/owner.go", "\t\t\t\tt.ends[at] = end\n", "\t\t\t\tt.ends[at] = end + int64(time.Second)\n"}},
		Kinds: []string{"views"}, Says: "results, want"},
	{Name: "K1: a new leader doesn't read what was removed", Edits: []edit{
		{"broker/removing/load.go", "\t\t\te = removal.EachSpan(r.Data, l.add)\n", "\t\t\te = removal.EachSpan(r.Data, func(removal.Span) {})\n"}},
		Faults: []string{"kill one", "drain leadership"}, Kinds: []string{"deletions"}},
	{Name: "snapshots: nothing is held", Edits: []edit{
		{"broker/log/trim.go", "\tl.holds[h] = struct{}{}\n", ""}},
		Faults: []string{"slow way"}, Kinds: []string{"compacted", "retained"}, Readers: []string{"snapshot"}, Says: "while it was held"},
	{Name: "deletion: logs of a deleted Topic stay", Edits: []edit{
		{"broker/topic/role.go", "\t\tdoing, err = \"delete\", s.deleteLogs(p)\n", "\t\tdoing = \"delete\"\n"}},
		Faults: []string{"a Topic is deleted"}, Says: "of a deleted Topic"},
	{Name: "deletion: logs of Topics that were deleted while the broker was away are not looked for", Edits: []edit{
		{"broker/topic/service.go", "\t\ts.running.Go(func() { s.stored.Settle(s.ctx, state, known) })\n", "\t\t_ = known\n"}},
		Faults: []string{"a Topic is deleted", "kill", "kill one"}, Says: "of a deleted Topic"},
	{Name: "deletion: a broker that was away doesn't look for tombstones", Edits: []edit{
		{"broker/inventory/unknown.go", "\t\tcase deleted && is.Topic == named.Topic:\n", "\t\tcase false && deleted:\n"}},
		Faults: []string{"a Topic is deleted", "kill", "kill one"}, Says: "was set aside, of a deleted Topic"},
	{Name: "deletion: a Topic that etcd lost is taken for a deleted one", Edits: []edit{
		{"broker/inventory/unknown.go", "\t\tcase deleted && is.Topic == named.Topic:\n", "\t\tcase deleted || is.Topic == named.Topic:\n"}},
		Faults: []string{"a Topic is deleted", "kill", "kill one"}, Says: "when etcd lost its Topic"},
	{Name: "deletion: a Topic is deleted without a tombstone", Edits: []edit{
		{"broker/coordination/topic_delete.go", "[]clientv3.Op{clientv3.OpDelete(c.topicKey(t.Name)), tombstone})", "[]clientv3.Op{clientv3.OpDelete(c.topicKey(t.Name)), tombstone}[:1])"}},
		Faults: []string{"a Topic is deleted", "kill", "kill one"}, Says: "was set aside, of a deleted Topic"},
	{Name: "K3: what a new leader read from batches is not written to the state log", Edits: []edit{
		{"broker/removing/keeper.go", "k.untaken = loaded.Taken, loaded.Limit, loaded.Carried", "k.untaken = loaded.Taken, loaded.Limit, nil"}},
		Faults: []string{"kill one", "drain leadership"}, Kinds: []string{"limited"}},
	{Name: "K2: a Mark speaks of removals that are in no Item", Edits: []edit{
		{"broker/removing/keeper.go", "\tif err := k.takeOver(c, below,", "\tif err := k.takeOver(carriage{expiries: c.expiries}, below,"}},
		Faults: []string{"kill one", "drain leadership"}, Kinds: []string{"limited"}},
	{Name: "removing: what a batch removes is not carried", Edits: []edit{
		{"broker/removing/batch.go", "\tfor spans := b.spans; len(spans) > 0; {\n", "\tfor spans := b.spans[:0]; len(spans) > 0; {\n"}},
		Faults: []string{"kill one", "drain leadership"}, Kinds: []string{"limited"}},
	{Name: "limits: one record too many is removed", Edits: []edit{
		{"broker/publish/limits.go", "\tover := count + records - min(count+records, l.PerSubject)\n", "\tover := count + records - min(count+records, max(l.PerSubject, 2)-1)\n"}},
		Faults: []string{"kill one"}, Kinds: []string{"limited"}, Says: "newer ones"},
	{Name: "T4: a condition is judged without the messages before it in its batch", Edits: []edit{
		{"broker/topic/subjects.go", "\t\tfor i := range in.records { // they are not in the log yet\n", "\t\tfor i := range in.records[:0] {\n"}},
		Faults: []string{"kill one", "drain leadership"}},
	{Name: "the last message of a subject: another one is found", Edits: []edit{
		{"broker/records/reader.go", "\t\t\tif matches(r.Subject) {\n\t\t\t\tlast = r.Offset\n", "\t\t\tif matches(r.Subject) && last == 0 {\n\t\t\t\tlast = r.Offset\n"}},
		Faults: []string{"kill one"}, Says: "is not linearizable"},
}
