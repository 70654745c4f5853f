package session

// Loan is memory of the kind that messages are sent from. Who makes large messages in it sends them without a copy:
// connections refer to it until the last one has been written.
type Loan slab

// Borrow returns a Loan of at least n bytes. It ends with SendLent or Return.
func Borrow(n int) *Loan { return (*Loan)(newSlab(n)) }

// Bytes is the memory; what is in it is anybody's guess.
func (l *Loan) Bytes() []byte { return l.buf }

// Return gives back a Loan of which nothing is to be sent.
func (l *Loan) Return() { (*slab)(l).release() }

// SendLent is Send for messages all parts of which lie in the Loan, which is no longer the caller's.
func (h *Hub) SendLent(l *Loan, messages []Message) {
	c := h.senders.Get().(*slabCopier)
	c.drop()
	c.batch.from = (*slab)(l)
	c.batch.begin()
	for i := range messages {
		c.batch.msg = messages[i]
		c.batch.publish(&c.batch.msg)
	}
	c.open = true
	c.flush()
	c.drop()
	h.restSender(c)
}
