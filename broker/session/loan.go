package session

import "github.com/carillon-mq/carillon/broker/work"

// Loan is a slab lent to a caller that builds large messages in it. They are sent without a copy:
// connections refer to it until the last one has written it.
type Loan slab

// Borrow returns a Loan of at least n bytes. SendLent or Return ends it.
func Borrow(n int) *Loan { return (*Loan)(newSlab(n)) }

// Bytes returns the memory. Its content is undefined at first.
func (l *Loan) Bytes() []byte { return l.buf }

// Return ends a Loan without sending.
func (l *Loan) Return() { (*slab)(l).Release() }

// SendLent is Send for messages whose slices all lie in the Loan, which it takes over.
func (h *Hub) SendLent(l *Loan, messages []Message) work.Behind {
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
	return h.releaseSender(c)
}
