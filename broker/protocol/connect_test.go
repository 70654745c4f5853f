package protocol

import (
	"errors"
	"testing"
)

func TestConnectDefaults(t *testing.T) {
	c, err := ParseConnect([]byte(`{}`))
	if err != nil || c != DefaultConnect || !c.Verbose || !c.Pedantic || !c.Echo || c.Headers || c.NoResponders {
		t.Errorf("an empty CONNECT is %+v, %v", c, err)
	}
}

func TestConnectAsClientsSendIt(t *testing.T) {
	c, err := ParseConnect([]byte(`{"verbose":false,"pedantic":false,"tls_required":true,"auth_token":"t","user":"u","pass":"p","nkey":"k","sig":"s","jwt":"j",` +
		`"name":"n","lang":"go","version":"1.55.0","protocol":1,"echo":false,"headers":true,"no_responders":true,"from_the_future":{"a":[1]}}`))
	want := Connect{
		TLSRequired: true, Token: "t", User: "u", Password: "p", NKey: "k", Signature: "s", JWT: "j",
		Name: "n", Lang: "go", Version: "1.55.0", Protocol: 1, Headers: true, NoResponders: true,
	}
	if err != nil || c != want {
		t.Errorf("\n got %+v, %v\nwant %+v", c, err, want)
	}
}

func TestConnectRefuses(t *testing.T) {
	for _, text := range []string{``, ` `, `{`, `{} {}`, `[]`, `"x"`, `{"verbose":1}`, `{"protocol":"1"}`, `{"user":7}`, `{"protocol":99999999999999999999}`} {
		if _, err := ParseConnect([]byte(text)); !errors.Is(err, ErrParser) {
			t.Errorf("ParseConnect(%q): error %v", text, err)
		}
	}
}
