package subscription

import (
	"errors"
	"testing"
	"time"
)

// TestReadersCountForTheirMaker: the readers of a user count until they end or are declared, also
// after a crash, and another one is refused while there are too many.
func TestReadersCountForTheirMaker(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		full := errors.New("full")
		make := func(name, user string) error {
			spec := earliest()
			spec.Consumer.Maker = user
			w.service.config.MayRead = func(user string, has int) error {
				if user == "ann" && has >= 2 {
					return full
				}
				return nil
			}
			_, err := w.service.Create(t.Context(), topicID, name, spec, time.Minute)
			return err
		}
		counts := func(ann, bob int) {
			t.Helper()
			if a, b := w.service.Readers("ann"), w.service.Readers("bob"); a != ann || b != bob {
				t.Errorf("ann has %d readers, bob %d; want %d, %d", a, b, ann, bob)
			}
		}
		for name, user := range map[string]string{"a1": "ann", "a2": "ann", "b": "bob", "nobody's": ""} {
			if err := make(name, user); err != nil {
				t.Fatal(err)
			}
		}
		if err := make("a3", "ann"); !errors.Is(err, full) {
			t.Errorf("a third one: %v", err)
		}
		counts(2, 1)
		w.crash()
		for _, name := range []string{"a1", "a2", "b"} {
			w.reads(name)
		}
		counts(2, 1)
		if err := make("a3", "ann"); !errors.Is(err, full) {
			t.Errorf("a third one after a crash: %v", err)
		}
		w.service.Remove(topicID, "a1")
		counts(1, 1)
		time.Sleep(10 * time.Minute) // nobody uses the others
		counts(0, 0)
		if err := make("a3", "ann"); err != nil {
			t.Error(err)
		}
		w.stop()
		counts(0, 0)
	})
}
