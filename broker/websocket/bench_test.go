package websocket

import (
	"strings"
	"testing"
)

func BenchmarkDecode(b *testing.B) {
	input := frame(0x82, strings.Repeat("x", 64<<10))
	b.SetBytes(64 << 10)
	d := new(Decoder)
	buf := make([]byte, len(input))
	for b.Loop() {
		copy(buf[:14], input)
		if _, err := d.Decode(buf); err != nil {
			b.Fatal(err)
		}
	}
}
