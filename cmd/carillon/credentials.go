package main

import (
	"cmp"
	"errors"
	"os"

	"github.com/spf13/pflag"

	"github.com/carillon-mq/carillon/broker/session"
)

// credentials are a user and password, or a token. Given in the environment, they are not in the
// list of processes.
type credentials struct{ user, password, token string }

func (c *credentials) flags(f *pflag.FlagSet) {
	f.StringVar(&c.user, "user", "", "the user that clients must name (or CARILLON_USER)")
	f.StringVar(&c.password, "password", "", "the password that goes with it (or CARILLON_PASSWORD)")
	f.StringVar(&c.token, "token", "", "the token that clients must present instead (or CARILLON_TOKEN)")
}

func (c *credentials) auth() (session.Auth, error) {
	a := session.Auth{
		User:     cmp.Or(c.user, os.Getenv("CARILLON_USER")),
		Password: cmp.Or(c.password, os.Getenv("CARILLON_PASSWORD")),
		Token:    cmp.Or(c.token, os.Getenv("CARILLON_TOKEN")),
	}
	switch {
	case a.User != "" && a.Token != "":
		return a, usageError{errors.New("a user and a token were given: choose one")}
	case (a.User == "") != (a.Password == ""):
		return a, usageError{errors.New("a user and a password go together: give both")}
	}
	return a, nil
}
