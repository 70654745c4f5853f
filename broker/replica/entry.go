package replica

import (
	"context"
	"errors"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// Word is a broker's statement about its own copy in the shard's key.
type Word uint8

// The words.
const (
	Vouch    Word = iota + 1 // this incarnation holds everything that was acknowledged
	Withdraw                 // it may not, and this broker does not lead any more
	Resign                   // it does, but this broker does not lead any more
)

func (w Word) String() string { return [...]string{"", "vouch", "withdraw", "resign"}[w] }

// errNoStore is the error of an exchange without a store.
var errNoStore = errors.New("this exchange keeps no in-sync sets")

// Say changes this broker's own entry in a shard's in-sync set by compare-and-swap, and calls done
// with the result: the shard as it was written, or an error.
//
//  1. The error is a *coordination.StaleError if the shard or the registration of self has changed.
//  2. After any other error, the write may have succeeded, or may still succeed.
//  3. Say does not block. It may not call done if the exchange closes.
//
// reach and leads are those of coordination.Client.Vouch: how far the copy goes, and whether this
// process leads the shard's epoch and goes on.
func (x *Exchange) Say(w Word, self coordination.Replica, before *coordination.Shard, reach coordination.Reach, leads bool, done func(after *coordination.Shard, err error)) {
	if !x.swaps.Submit(func() { done(x.say(w, self, before, reach, leads)) }, 0) {
		done(nil, errClosing)
	}
}

func (x *Exchange) say(w Word, self coordination.Replica, before *coordination.Shard, reach coordination.Reach, leads bool) (*coordination.Shard, error) {
	store := x.config.Store
	if store == nil {
		return nil, errNoStore
	}
	ctx, cancel := context.WithTimeout(x.ctx, swapTimeout)
	defer cancel()
	switch w {
	case Vouch:
		return store.Vouch(ctx, self, before, reach, leads)
	case Withdraw:
		return store.Withdraw(ctx, self, before)
	}
	return store.Resign(ctx, self, before)
}
