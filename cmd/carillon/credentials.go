package main

import (
	"cmp"
	"errors"
	"os"

	"github.com/spf13/pflag"

	"github.com/carillon-mq/carillon/broker/login"
)

// credentials say who may connect: one user, the bearer of a token, or the users in a file. Given
// in the environment, a password is not in the list of processes.
type credentials struct{ user, password, token, users string }

func (c *credentials) flags(f *pflag.FlagSet) {
	f.StringVar(&c.user, "user", "", "the user that clients must name (or CARILLON_USER)")
	f.StringVar(&c.password, "password", "", "the password that goes with it (or CARILLON_PASSWORD)")
	f.StringVar(&c.token, "token", "", "the token that clients must present instead (or CARILLON_TOKEN)")
	f.StringVar(&c.users, "users", "", "regular file with users and their permissions, in JSON; read again when it changes (or CARILLON_USERS)")
}

// auth returns the only user, or the path of the file of users, or neither.
func (c *credentials) auth() (one login.Single, users string, err error) {
	one = login.Single{
		User:     cmp.Or(c.user, os.Getenv("CARILLON_USER")),
		Password: cmp.Or(c.password, os.Getenv("CARILLON_PASSWORD")),
		Token:    cmp.Or(c.token, os.Getenv("CARILLON_TOKEN")),
	}
	users = cmp.Or(c.users, os.Getenv("CARILLON_USERS"))
	switch {
	case users != "" && one.Given():
		return one, users, usageError{errors.New("a file of users and also a user or a token were given: choose one")}
	case one.User != "" && one.Token != "":
		return one, users, usageError{errors.New("a user and a token were given: choose one")}
	case (one.User == "") != (one.Password == ""):
		return one, users, usageError{errors.New("a user and a password go together: give both")}
	}
	return one, users, nil
}
