package stamping

import "encoding/binary"

// ExtensionType is the type of the extension of a batch with stamps.
const ExtensionType = 4

// Writer encodes the stamps of a batch's records. The zero Writer is ready. One goroutine uses it.
type Writer struct {
	data []byte
	at   uint64 // where the last run that was written ends
	// The run that grows; from == next: there is none.
	from, next uint64
	text       string
	places     map[string]int // of texts that were written, from the second on
	first      string
	firstAt    int // its place, if texts is not 0
	texts      int
}

// Begin begins the stamps of a batch with that base.
func (w *Writer) Begin(base uint64) {
	w.data, w.at, w.from, w.next, w.text, w.first, w.texts = w.data[:0], base, base, base, "", "", 0
	if len(w.places) > mostPlaces {
		w.places = nil
	}
	clear(w.places)
}

// Add gives a record a stamp. Records are added in their order; those without a stamp need not be.
// A text beyond Most, which no subject has, is none.
func (w *Writer) Add(offset uint64, text string) {
	if text == "" || len(text) > Most {
		return
	}
	if w.from < w.next && w.next == offset && w.text == text {
		w.next++
		return
	}
	w.end()
	w.from, w.next, w.text = offset, offset+1, text
}

// AddBytes is Add for a text that is not kept.
func (w *Writer) AddBytes(offset uint64, text []byte) {
	if len(text) > 0 && w.from < w.next && w.text == string(text) {
		w.Add(offset, w.text)
		return
	}
	w.Add(offset, string(text))
}

// AddRun gives all records from from up to and without next a stamp.
func (w *Writer) AddRun(from, next uint64, text string) {
	if w.Add(from, text); w.next == from+1 {
		w.next = max(w.next, next)
	}
}

// end writes the run that grows.
func (w *Writer) end() {
	if w.from == w.next {
		return
	}
	w.data = binary.AppendUvarint(w.data, w.from-w.at)
	w.data = binary.AppendUvarint(w.data, w.next-w.from)
	w.at, w.from = w.next, w.next
	place, known := w.place()
	if known {
		w.data = binary.AppendUvarint(w.data, uint64(place)+1)
		return
	}
	w.data = append(w.data, 0)
	place = len(w.data)
	w.data = binary.AppendUvarint(w.data, uint64(len(w.text)))
	w.data = append(w.data, w.text...)
	if w.texts++; w.texts == 1 {
		w.first, w.firstAt = w.text, place
		return
	}
	if w.places == nil {
		w.places = map[string]int{}
	}
	w.places[w.text] = place
}

// place returns where the text of the run was written. Most batches have one text.
func (w *Writer) place() (at int, known bool) {
	if w.texts > 0 && w.first == w.text {
		return w.firstAt, true
	}
	at, known = w.places[w.text]
	return at, known
}

// Size returns how many bytes the extension has at most.
func (w *Writer) Size() int {
	if w.from == w.next {
		return len(w.data)
	}
	return len(w.data) + 4*binary.MaxVarintLen64 + len(w.text)
}

// Data returns the data of the extension; empty: no record has a stamp. It is valid until Begin,
// and no record may be added any more.
func (w *Writer) Data() []byte {
	w.end()
	return w.data
}

// Drop forgets the batch, and texts that are not the Writer's own.
func (w *Writer) Drop() { w.Begin(0) }
