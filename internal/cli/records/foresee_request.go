package records

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"
)

// userDeletion holds the arguments of `sexton user delete`.
type userDeletion struct {
	ID, Initiator      int64
	Hard, Groups, Plan bool
}

// By is the user on whose behalf something is done, if one is named.
func (r userDeletion) By() *int64 {
	if r.Initiator == 0 {
		return nil
	}
	return &r.Initiator
}

// refusal is the answer of one of the doors in the database to a request that it does not grant, and nil where
// the error is another one.
func refusal(err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok || !strings.HasPrefix(pgErr.Code, "SX01") && !strings.HasPrefix(pgErr.Code, "SX02"):
		return nil
	case pgErr.Hint != "":
		return fmt.Errorf("%s (%s)", pgErr.Message, pgErr.Hint)
	}
	return errors.New(pgErr.Message)
}

// groupRequest is a command's request for a group.
type groupRequest struct {
	ID, By int64
	// Anybody reports that no user need be named, as nothing is changed.
	Anybody bool
}

// Flags adds the flags of a command about a group.
func (r *groupRequest) Flags(cmd *cobra.Command) {
	cmd.Flags().Int64Var(&r.By, "by", 0, "`ID` of the user on whose behalf this is done")
}
