package viewing

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"github.com/carillon-mq/carillon/broker/aggregate"
)

// resultSubject returns the subject of a view's results of a key in an output Topic:
// TOPIC.VIEW.KEY…, with a token for each value of the key, and none if the view has one key.
func resultSubject(topic, view string, keys []aggregate.Value) string {
	return topic + "." + view + keyTokens(keys)
}

// alertSubject returns the subject of a trigger's alerts of a key: TOPIC.VIEW.TRIGGER.KEY….
func alertSubject(topic, view, trigger string, keys []aggregate.Value) string {
	return topic + "." + view + "." + trigger + keyTokens(keys)
}

// keyTokens returns the values of a key as tokens, each behind a dot. Different keys have different
// tokens:
//
//  1. A text is itself. Of it a dot, '*', '>', '%', blanks, control characters and bytes that are
//     no UTF-8 are '%' and two hexadecimal digits, and so is a '=' at the beginning.
//  2. A text without a character is "%".
//  3. Others have '=' before them: =4, =true, =2026-01-02T03:04:05Z. A missing value is "=".
//  4. If that takes more than keyBytes, it is "%h-" and the SHA-256 of it, one token for the key.
func keyTokens(keys []aggregate.Value) string {
	var b strings.Builder
	for _, v := range keys {
		b.WriteByte('.')
		if text := v.String(); v.Kind != aggregate.Text {
			b.WriteByte('=')
			escape(&b, text, 0)
		} else if text == "" {
			b.WriteByte('%')
		} else {
			escape(&b, text, '=')
		}
	}
	if b.Len() > keyBytes {
		sum := sha256.Sum256([]byte(b.String()))
		return ".%h-" + hex.EncodeToString(sum[:])
	}
	return b.String()
}

// escape writes a text as a part of a token. The character first is escaped at the beginning.
func escape(b *strings.Builder, text string, first byte) {
	const digits = "0123456789ABCDEF"
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		c := text[i]
		if size > 1 || r != utf8.RuneError && c > ' ' && c < 0x7f && c != '.' && c != '*' && c != '>' && c != '%' && !(i == 0 && c == first) {
			b.WriteString(text[i : i+size])
		} else {
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
		i += size
	}
}
