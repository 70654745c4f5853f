package main

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/nats-io/nkeys"
	"github.com/spf13/cobra"
	"golang.org/x/crypto/bcrypt"
	"golang.org/x/term"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/login"
)

func newUserCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "user",
		Short: "Make what a file of users has in it, and check such a file",
		Long: `Make what a file of users has in it, and check such a file. Brokers read it with --users.

The file has verifiers only: a hash of a password or a token, or the public key of an nkey.`,
		Example: `  carillon user hash
  carillon user token
  carillon user nkey
  carillon user check users.json`,
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newUserHashCommand(), newUserTokenCommand(), newUserNKeyCommand(), newUserCheckCommand())
	return cmd
}

// maxPassword is the longest password that bcrypt looks at, in bytes.
const maxPassword = 72

func newUserHashCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "hash",
		Short: "Print the bcrypt hash of a password, which is read from standard input",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			password, err := readPassword(cmd)
			if err != nil {
				return err
			}
			hash, err := bcrypt.GenerateFromPassword(password, bcrypt.DefaultCost)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", hash)
			return err
		},
	}
}

// readPassword reads a line. On a terminal it asks for it, and does not show it.
func readPassword(cmd *cobra.Command) (password []byte, err error) {
	if in, ok := cmd.InOrStdin().(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		fmt.Fprint(cmd.ErrOrStderr(), "password: ")
		password, err = term.ReadPassword(int(in.Fd()))
		fmt.Fprintln(cmd.ErrOrStderr())
	} else {
		var line string
		line, err = bufio.NewReader(io.LimitReader(cmd.InOrStdin(), 2*maxPassword)).ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = nil
		}
		password = []byte(strings.TrimRight(line, "\r\n"))
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the password: %w", err)
	case len(password) == 0:
		return nil, errors.New("the password is empty; write it to standard input")
	case len(password) > maxPassword:
		return nil, fmt.Errorf("the password has more than %d bytes, and bcrypt looks at no more", maxPassword)
	}
	return password, nil
}

func newUserTokenCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "token",
		Short: "Make a token, and print it and its verifier",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			token := rand.Text()
			sum := sha256.Sum256([]byte(token))
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "token (for the client):     %s\ntokens (for the file):      sha256:%s\n", token, hex.EncodeToString(sum[:]))
			return err
		},
	}
}

func newUserNKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "nkey",
		Short: "Make an nkey, and print its seed and its public key",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			key, err := nkeys.CreateUser()
			if err != nil {
				return err
			}
			seed, err := key.Seed()
			if err != nil {
				return err
			}
			public, err := key.PublicKey()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "seed (for the client):      %s\nnkeys (for the file):       %s\n", seed, public)
			return err
		},
	}
}

func newUserCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Say whether a broker would take a file of users",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("%s takes the path of a file, but was given %d arguments", cmd.CommandPath(), len(args))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			doc, err := (&login.File{Path: args[0]}).Document()
			if err != nil {
				return err
			}
			table, err := doc.Table()
			if err != nil {
				return fmt.Errorf("users in %s: %w", args[0], err)
			}
			for _, u := range doc.Users {
				fmt.Fprintf(cmd.OutOrStdout(), "%s  %s\n", u.Name, describeUser(&u, table))
			}
			return nil
		},
	}
}

// describeUser says how a user authenticates, and which roles and limits it has.
func describeUser(u *identity.User, table *identity.Table) string {
	var by []string
	for _, way := range []struct {
		name string
		n    int
	}{{"password", len(u.Passwords)}, {"token", len(u.Tokens)}, {"nkey", len(u.NKeys)}, {"certificate", len(u.Certificates)}} {
		if way.n > 0 {
			by = append(by, way.name)
		}
	}
	if is := table.Anonymous(); is != nil && is.Name == u.Name {
		by = append(by, "nothing")
	}
	how := "by " + strings.Join(by, ", ")
	if len(by) == 0 {
		how = "can't connect: it has no password, token, nkey or certificate"
	}
	how += "; roles " + table.User(u.Name).Roles.String()
	if limits := u.Limits.String(); limits != "" {
		how += "; limits " + limits
	}
	return how
}
