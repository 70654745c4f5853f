package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
)

// upkeep keeps a member's database below its quota, where etcd refuses writes until a person helps.
// etcd itself compacts by number of revisions, and every five minutes, so large values that are
// written often fill it before.
//
//  1. The leader compacts the history when the data in use exceed a quarter of the quota.
//  2. A member rewrites its file when most of it is free. Members take turns, since a compaction
//     frees the same in all of them, and one that rewrites applies nothing meanwhile.
//  3. A member without room raises an alarm, and all of them refuse writes. It takes the alarm back
//     when there is room again. The leader takes back those of members that are gone.
type upkeep struct {
	etcd      *etcdserver.EtcdServer
	log       *slog.Logger
	quota     int64
	kept      int64     // revisions that the next compaction leaves
	compacted int64     // revision, by this member
	rewritten time.Time // when it rewrote its file last
}

const (
	// upkeepEvery is how often the sizes are looked at: less than what is written at 20 MB/s
	// meanwhile fits below the quota.
	upkeepEvery = 2 * time.Second
	// keptUnderPressure is how many revisions stay when the history is too large: watches are a few
	// hundred behind at most, and those that are further behind read again. If that is too much
	// still, half as many stay the next time, and keptAtLeast in the end.
	keptUnderPressure = 500
	keptAtLeast       = 8
	// rewriteEvery is the least time between two rewrites, each of which holds up the member for a
	// second, and rewriteAgain the same while writes are refused.
	rewriteEvery = time.Minute
	rewriteAgain = 2 * upkeepEvery
	// rewriteTurn is how long the turn of a member is, in which it may begin to rewrite: a few times
	// what that takes on a slow disk.
	rewriteTurn = 10 * time.Second
)

// run looks after the database until ctx ends.
func (u *upkeep) run(ctx context.Context) {
	tick := time.NewTicker(upkeepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			u.step(ctx)
		}
	}
}

// step does what is due.
func (u *upkeep) step(ctx context.Context) {
	db := u.etcd.Backend()
	switch {
	case db.SizeInUse() <= u.quota/4:
		u.kept = keptUnderPressure
	case u.etcd.Leader() == u.etcd.MemberID():
		u.compact(ctx)
	}
	u.disarmGone(ctx)
	alarm, pause := u.alarm(), rewriteEvery
	if alarm != nil {
		pause = rewriteAgain
	}
	if ctx.Err() != nil {
		return // the server ends, and closes the database
	}
	due := time.Since(u.rewritten) >= pause && (alarm != nil || u.hasTurn(time.Now()))
	if size := db.Size(); size > u.quota/2 && db.SizeInUse() < size/2 && due {
		u.rewrite(db)
	}
	if alarm != nil && db.Size() < u.quota/4*3 {
		u.disarm(ctx, alarm)
	}
}

// hasTurn reports whether this member may rewrite its file now.
func (u *upkeep) hasTurn(now time.Time) bool {
	var ids []types.ID
	for _, member := range u.etcd.Cluster().Members() {
		ids = append(ids, member.ID)
	}
	return len(ids) > 0 && turnOf(ids, now) == u.etcd.MemberID()
}

// turnOf returns which of the members may rewrite its file. Members whose clocks differ by less
// than a turn agree but for its end.
func turnOf(ids []types.ID, now time.Time) types.ID {
	slices.Sort(ids)
	return ids[now.UnixNano()/int64(rewriteTurn)%int64(len(ids))]
}

// alarm returns this member's alarm that it has no room, or nil.
func (u *upkeep) alarm() *etcdserverpb.AlarmMember {
	for _, alarm := range u.etcd.Alarms() {
		if alarm.Alarm == etcdserverpb.AlarmType_NOSPACE && alarm.MemberID == uint64(u.etcd.MemberID()) {
			return alarm
		}
	}
	return nil
}

// compact deletes all but the newest revisions.
func (u *upkeep) compact(ctx context.Context) {
	to := u.etcd.KV().Rev() - u.kept
	if to <= u.compacted {
		u.kept = max(u.kept/2, keptAtLeast)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := u.etcd.Compact(ctx, &etcdserverpb.CompactionRequest{Revision: to})
	if err != nil && !errors.Is(err, mvcc.ErrCompacted) {
		u.log.Warn("the history takes much room, and could not be compacted yet", "revision", to, "error", err)
		return
	}
	u.compacted, u.kept = to, max(u.kept/2, keptAtLeast) // by this member, or another one was first
	if err == nil {
		u.log.Info("compacted the history, which took much room", "revision", to, "inUse", u.etcd.Backend().SizeInUse())
	}
}

// rewrite gives the free room in the file back.
func (u *upkeep) rewrite(db backend.Backend) {
	u.rewritten = time.Now()
	before := db.Size()
	if err := db.Defrag(); err != nil {
		u.log.Error("the database file could not be rewritten", "error", err)
		return
	}
	u.log.Info("rewrote the database file", "bytes", db.Size(), "before", before, "took", time.Since(u.rewritten))
}

// disarmGone takes back the alarms of members that are not in the cluster any more, who can't: they
// were replaced, or etcd was restored, which makes other members.
func (u *upkeep) disarmGone(ctx context.Context) {
	if u.etcd.Leader() != u.etcd.MemberID() {
		return
	}
	for _, alarm := range u.etcd.Alarms() {
		if alarm.Alarm == etcdserverpb.AlarmType_NOSPACE && u.etcd.Cluster().Member(types.ID(alarm.MemberID)) == nil {
			u.disarm(ctx, alarm)
		}
	}
}

// disarm takes back an alarm.
func (u *upkeep) disarm(ctx context.Context, alarm *etcdserverpb.AlarmMember) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if _, err := u.etcd.Alarm(ctx, &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_DEACTIVATE, MemberID: alarm.MemberID, Alarm: alarm.Alarm}); err != nil {
		u.log.Warn("an alarm that there is no room for writes could not be taken back yet", "member", types.ID(alarm.MemberID).String(), "error", err)
		return
	}
	u.log.Info("took back an alarm that there is no room for writes", "member", types.ID(alarm.MemberID).String())
}
