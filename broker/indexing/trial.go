package indexing

// trial is what a Lasts knew of the subjects that were noted since Try. The zero trial keeps
// nothing.
type trial struct {
	on     bool
	before []former
}

// former is what was known of a subject, or the oldest records of all subjects if all is set.
type former struct {
	key    lastKey
	last   uint64
	noted  bool // last has the subject
	oldest oldest
	known  *oldest // of which oldest is a copy; nil: none
	all    map[lastKey]*oldest
	held   int
}

// Try says that what is noted from now on may be undone by Undo, until Appended. Everything that
// was noted before is in the log.
func (x *Lasts) Try() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.trial = trial{on: !x.noted}
}

// Undo undoes what was noted since Try. Of other subjects nothing is forgotten. Without Try, or if
// everything was forgotten meanwhile, it is Reset. The log ends at an offset.
func (x *Lasts) Undo(end uint64) {
	if x.rests.Load() {
		return
	}
	x.mu.Lock()
	if !x.trial.on {
		x.mu.Unlock()
		x.Reset(end)
		return
	}
	defer x.mu.Unlock()
	t := x.trial
	x.trial = trial{}
	for i := len(t.before) - 1; i >= 0; i-- {
		x.restore(&t.before[i])
	}
	x.firsts.undo()
	x.matches.undo()
	if x.noted = false; x.forget {
		x.forgetAll()
	}
	x.goOn()
	x.count()
}

// touch remembers a subject before it changes. mu is held.
func (t *trial) touch(x *Lasts, key lastKey) {
	if !t.on {
		return
	}
	f := former{key: key, known: x.firsts.known[key]}
	f.last, f.noted = x.last[key]
	if f.known != nil {
		f.oldest = *f.known
	}
	t.before = append(t.before, f)
}

// touchAll remembers the oldest records of all subjects before they are forgotten. mu is held.
func (t *trial) touchAll(x *Lasts) {
	if t.on {
		t.before = append(t.before, former{all: x.firsts.known, held: x.firsts.held})
	}
}

// restore undoes one change. Oldest records that others have changed meanwhile are forgotten. mu is
// held.
func (x *Lasts) restore(f *former) {
	if f.all != nil {
		x.firsts.known, x.firsts.held = f.all, f.held
		return
	}
	if f.noted {
		x.last[f.key] = f.last
	} else {
		delete(x.last, f.key)
	}
	o := x.firsts.known[f.key]
	switch {
	case o == nil:
	case o != f.known || o.looking || f.oldest.looking || o.purged != f.oldest.purged:
		x.firsts.forget(f.key)
	default:
		x.firsts.held += 8 * (len(f.oldest.offsets) - len(o.offsets))
		*o = f.oldest
	}
}
