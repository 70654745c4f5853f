package subscription

import (
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// Subscription is one durable reader, served here.
type Subscription struct{}

// Name is the Subscription's name.
func (s *Subscription) Name() string { return "" }

// Spec is what is asked for. It belongs to all its readers.
func (s *Subscription) Spec() *coordination.SubscriptionSpec { return nil }

// Created is when it was made.
func (s *Subscription) Created() time.Time { return time.Time{} }

// Ephemeral says that it is in this broker's memory only.
func (s *Subscription) Ephemeral() bool { return false }

// Pull asks for messages. They go to the Outlet, as does the reason for which the request ends.
func (s *Subscription) Pull(p Pull) {}

// Ack says what became of a delivery. If somebody waits for it, done is called, once, when what it says
// survives as the Topic's durability has it, or with the reason for which it doesn't. done must not block.
func (s *Subscription) Ack(offset, sequence, delivered uint64, kind AckKind, delay time.Duration, done func(error)) {
}

// Info says where the Subscription stands.
func (s *Subscription) Info() Info { return Info{} }
