package bench

// An account follows one publisher at one subscriber: a bit for each message that is
// expected, so that a loss and a duplicate are told apart and neither can hide the other.
type account struct {
	bits       []uint64
	highest    int // the highest sequence seen, or -1
	distinct   int
	duplicates int
	reordered  int
	heard      bool // a probe has come through
}

func wordsFor(messages int) int { return (messages + 63) / 64 }

// A verdict is what one delivery was.
type verdict int

const (
	verdictNew verdict = iota
	verdictReordered
	verdictDuplicate
	verdictUnexpected
)

// observe enters one delivery. Reordered is a first delivery after a later message of the
// same publisher had come.
func (a *account) observe(sequence uint32) verdict {
	word, bit := int(sequence/64), uint64(1)<<(sequence%64)
	if word >= len(a.bits) {
		return verdictUnexpected
	}
	if a.bits[word]&bit != 0 {
		a.duplicates++
		return verdictDuplicate
	}
	a.bits[word] |= bit
	a.distinct++
	if int(sequence) < a.highest {
		a.reordered++
		return verdictReordered
	}
	a.highest = int(sequence)
	return verdictNew
}

// A ledger is the accounts of one subscriber with all its sources.
type ledger struct {
	sources  []int
	accounts []account
}

func newLedgers(w Workload) []ledger {
	words, total := wordsFor(w.schedule.perPublisher()), 0
	for _, l := range w.subscribers {
		total += len(l.sources)
	}
	bits, accounts := make([]uint64, words*total), make([]account, total)
	ledgers := make([]ledger, len(w.subscribers))
	for i, l := range w.subscribers {
		ledgers[i] = ledger{sources: l.sources, accounts: accounts[:len(l.sources):len(l.sources)]}
		accounts = accounts[len(l.sources):]
		for j := range ledgers[i].accounts {
			ledgers[i].accounts[j] = account{bits: bits[:words:words], highest: -1}
			bits = bits[words:]
		}
	}
	return ledgers
}

// account returns nil for a publisher that this subscriber did not ask for.
func (l *ledger) account(publisher int) *account {
	for i, source := range l.sources {
		if source == publisher {
			return &l.accounts[i]
		}
	}
	return nil
}

// Deliveries says what became of the messages that were published, warm-up included.
type Deliveries struct {
	Expected   int64 `json:"expected"`
	Received   int64 `json:"received"` // each message once
	Lost       int64 `json:"lost"`
	Duplicated int64 `json:"duplicated"`
	OutOfOrder int64 `json:"out_of_order"`
	Unexpected int64 `json:"unexpected"` // damaged, or sent to a subscriber that did not ask for it
}

// settleAccounts compares what each subscriber got with what was published.
func settleAccounts(ledgers []ledger, published []int) Deliveries {
	var d Deliveries
	for i := range ledgers {
		for j, source := range ledgers[i].sources {
			a := &ledgers[i].accounts[j]
			d.Expected += int64(published[source])
			d.Received += int64(a.distinct)
			d.Lost += int64(max(0, published[source]-a.distinct))
			d.Duplicated += int64(a.duplicates)
			d.OutOfOrder += int64(a.reordered)
		}
	}
	return d
}

func (d Deliveries) faulty() bool {
	return d.Lost+d.Duplicated+d.OutOfOrder+d.Unexpected > 0
}

func (d Deliveries) plus(o Deliveries) Deliveries {
	return Deliveries{
		Expected: d.Expected + o.Expected, Received: d.Received + o.Received, Lost: d.Lost + o.Lost,
		Duplicated: d.Duplicated + o.Duplicated, OutOfOrder: d.OutOfOrder + o.OutOfOrder,
		Unexpected: d.Unexpected + o.Unexpected,
	}
}
