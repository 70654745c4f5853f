package viewing

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/aggregate"
	"github.com/carillon-mq/carillon/broker/work"
)

// Ask chooses present values of a view.
type Ask struct {
	// Keys are those that are asked for, with the texts of their values; a key of one value may be
	// that text alone. Empty: all.
	Keys []KeyTexts `json:"keys,omitempty"`
	// After is the Next of the page before, and Limit how many values a page has at most.
	After string `json:"after,omitempty"`
	Limit int    `json:"limit,omitempty"`
}

// KeyTexts are the values of a key as texts.
type KeyTexts []string

// UnmarshalJSON reads a list of texts, or one.
func (k *KeyTexts) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*k = KeyTexts{one}
		return nil
	}
	var all []string
	if err := json.Unmarshal(b, &all); err != nil {
		return errors.New(`a key is a text, or a list of them (write "410", or ["eu","410"])`)
	}
	*k = all
	return nil
}

// Values is a page of present values: of open windows, and of all messages of views without
// windows.
type Values struct {
	Values []Value `json:"values"`
	// Offsets are the next ones of the shards: the values are of all messages before.
	Offsets []uint64 `json:"offsets"`
	Next    string   `json:"next,omitempty"` // what the next page is after
	// Trouble is why results are not up to date; empty: they are.
	Trouble string `json:"trouble,omitempty"`
}

// Value is the present result of a key, or of a key's window.
type Value struct {
	Keys   []aggregate.Value          `json:"key"`
	From   time.Time                  `json:"from"`
	To     time.Time                  `json:"to"`
	Values map[string]aggregate.Value `json:"values"`
}

// ErrNotOwned says that a view has no owner here.
var ErrNotOwned = errors.New("this broker does not write the view's results at the moment: ask again")

// ErrAfter says that a request's After is none.
var ErrAfter = errors.New("after is not the next of a page before")

// gotten are present values that are told again for a moment, or why there are none.
type gotten struct {
	turn    chan struct{} // has one element while they are asked for, or used
	at      time.Time
	rows    []aggregate.Row // by key, and then by start
	offsets []uint64
	loan    *loan // of rows
	err     error // why there are none
}

// Values returns present values of a view whose Topic's first shard is led here.
func (s *Service[S]) Values(ctx context.Context, shard S, name string, ask *Ask) (*Values, error) {
	o := s.owner(shard, name)
	if o == nil {
		return nil, ErrNotOwned
	}
	rows, offsets, err := o.gotten(ctx)
	if err != nil {
		return nil, err
	}
	page, err := pageOf(rows, offsets, o.view.Names(), ask)
	if err == nil {
		known := o.known()
		page.Trouble = bounded(known.trouble())
	}
	return page, err
}

// gotten returns present values of a moment ago at most, or why there were none then. Those that
// ask at once share that.
func (o *owner[S]) gotten(ctx context.Context) ([]aggregate.Row, []uint64, error) {
	g := &o.got
	select {
	case g.turn <- struct{}{}:
		defer func() {
			<-g.turn
			if o.over.Load() { // meanwhile
				o.expire()
			}
		}()
	case <-ctx.Done(): // not as long as those who asked before
		return nil, nil, ctx.Err()
	}
	if !g.at.IsZero() && time.Since(g.at) < getEvery {
		return g.rows, g.offsets, g.err
	}
	o.forgetGotten()
	is, err := o.tryPresent(ctx)
	if err != nil {
		if ctx.Err() == nil { // others may have more time
			g.at, g.err = time.Now(), err
		}
		return nil, nil, err
	}
	slices.SortFunc(is.rows, func(a, b aggregate.Row) int { return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Start, b.Start)) })
	g.rows, g.loan, g.at, g.offsets = is.rows, is.loan, time.Now(), make([]uint64, o.place.Shards)
	for n := range g.offsets {
		g.offsets[n] = is.offsets[uint32(n)]
	}
	return g.rows, g.offsets, nil
}

// tryPresent asks for present values until they come, some times, with pauses that grow: shards go
// on meanwhile, or get a leader. Each time it asks all shards: an earlier answer is of no use once
// the owner has heard more of its shard.
func (o *owner[S]) tryPresent(ctx context.Context) (is presentRows, err error) {
	pause := getPause
	for tries := 1; ; tries++ {
		if err = o.unled(); err == nil {
			is, _, err = o.present(ctx)
		}
		if err == nil || tries == getTries || o.over.Load() || !work.Sleep(ctx, pause) {
			return is, err
		}
		pause *= 2
	}
}

// unled returns which shard has no leader, or nil: while there is one, the others would be asked in
// vain.
func (o *owner[S]) unled() error {
	for n := range o.place.Shards {
		if _, here, leader := o.service.Shard(o.place.Topic, n); !here && (leader == "" || leader == o.service.Self) {
			return fmt.Errorf("shard %d: %w", n, errUnreached)
		}
	}
	return nil
}

// expire forgets values that are too old to be told: those of all shards may have much memory.
func (o *owner[S]) expire() {
	g := &o.got
	select {
	case g.turn <- struct{}{}:
		if time.Since(g.at) >= getEvery || o.over.Load() {
			o.forgetGotten()
		}
		<-g.turn
	default: // they are being asked for
	}
}

// forgetGotten forgets present values. The caller has its turn.
func (o *owner[S]) forgetGotten() {
	g := &o.got
	g.loan.give()
	g.rows, g.offsets, g.at, g.loan, g.err = nil, nil, time.Time{}, nil, nil
}

// pageOf returns the page that is asked for of rows, which are sorted by key and start.
func pageOf(rows []aggregate.Row, offsets []uint64, names []string, ask *Ask) (*Values, error) {
	from := 0
	if ask.After != "" {
		key, start, ok := parseAfter(ask.After)
		if !ok {
			return nil, ErrAfter
		}
		from, _ = slices.BinarySearchFunc(rows, struct{}{}, func(r aggregate.Row, _ struct{}) int {
			return cmp.Or(cmp.Compare(r.Key, key), cmp.Compare(r.Start, start), -1)
		})
	}
	limit := ask.Limit
	if limit <= 0 || limit > getMost {
		limit = getMost
	}
	page, bytes := &Values{Values: []Value{}, Offsets: offsets}, 0
	for i := from; i < len(rows); i++ {
		r := &rows[i]
		if !ask.has(r) {
			continue
		}
		if len(page.Values) == limit || bytes > getBytes {
			page.Next = after(&rows[i-1])
			break
		}
		v := Value{Keys: append([]aggregate.Value{}, r.Keys...), From: time.Unix(0, r.Start).UTC(), To: time.Unix(0, r.End).UTC(), Values: map[string]aggregate.Value{}}
		bytes += 100 + len(r.Key)
		for j, name := range names {
			v.Values[name] = r.Values[j]
			bytes += len(name) + 24 + len(r.Values[j].Text)
		}
		page.Values = append(page.Values, v)
	}
	return page, nil
}

// has reports whether a row is asked for.
func (a *Ask) has(r *aggregate.Row) bool {
	return len(a.Keys) == 0 || slices.ContainsFunc(a.Keys, func(k KeyTexts) bool {
		return slices.EqualFunc(k, r.Keys, func(text string, v aggregate.Value) bool { return text == v.String() })
	})
}

// after returns a token for what is behind a row.
func after(r *aggregate.Row) string {
	return base64.RawURLEncoding.EncodeToString(append(binary.BigEndian.AppendUint64(nil, uint64(r.Start)), r.Key...))
}

func parseAfter(token string) (key string, start int64, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) < 8 {
		return "", 0, false
	}
	return string(b[8:]), int64(binary.BigEndian.Uint64(b)), true
}
