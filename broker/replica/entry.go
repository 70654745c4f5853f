package replica

import (
	"context"
	"errors"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// EntryChange is a change of this broker's own entry in the in-sync set of a shard.
type EntryChange uint8

// The changes.
const (
	// Vouch: this incarnation holds everything that was acknowledged.
	Vouch EntryChange = iota + 1
	// Withdraw: this incarnation may lack acknowledged records, and does not lead any more.
	Withdraw
	// Resign: this incarnation holds everything that was acknowledged, but does not lead any more.
	Resign
)

func (c EntryChange) String() string { return [...]string{"", "vouch", "withdraw", "resign"}[c] }

// errNoStore is the error of an exchange without a store.
var errNoStore = errors.New("this exchange keeps no in-sync sets")

// ChangeEntry changes this broker's own entry in a shard's in-sync set by compare-and-swap, and
// calls done with the result: the shard as it was written, or an error.
//
//  1. The error is a *coordination.StaleError if the shard or the registration of self has changed.
//  2. After any other error, the write may have succeeded, or may still succeed.
//  3. ChangeEntry does not block. It may not call done if the exchange closes.
//
// reach and leads are those of coordination.Client.Vouch: how far the copy goes, and whether this
// process leads the shard's epoch and continues to lead it.
func (x *Exchange) ChangeEntry(change EntryChange, self coordination.Replica,
	before *coordination.Shard, reach coordination.Reach, leads bool,
	done func(after *coordination.Shard, err error)) {
	if !x.swaps.Submit(func() { done(x.changeEntry(change, self, before, reach, leads)) }, 0) {
		done(nil, errClosing)
	}
}

func (x *Exchange) changeEntry(change EntryChange, self coordination.Replica,
	before *coordination.Shard, reach coordination.Reach, leads bool) (*coordination.Shard, error) {
	store := x.config.Store
	if store == nil {
		return nil, errNoStore
	}
	ctx, cancel := context.WithTimeout(x.ctx, swapTimeout)
	defer cancel()
	switch change {
	case Vouch:
		return store.Vouch(ctx, self, before, reach, leads)
	case Withdraw:
		return store.Withdraw(ctx, self, before)
	}
	return store.Resign(ctx, self, before)
}
