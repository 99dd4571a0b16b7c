package app

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/cli"
	"sexton/internal/ghostuser"
	"sexton/internal/words"
)

func printStatus(env *cli.Env, document statusDocument) error {
	return env.Table(func(w io.Writer) {
		_, _ = fmt.Fprintln(w, "DELETION TABLE\tDATABASE\tPENDING\tOLDEST\tPUT OFF\tCONFIRMING")
		for _, t := range document.DeletionTables {
			if t.Unreachable != "" {
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t-\t-\t-\n", t.Table, t.Database, "unreachable")
				continue
			}
			pending, oldest := fmt.Sprint(t.Pending), "-"
			if t.Capped {
				pending += "+"
			}
			if t.Pending > 0 {
				oldest = time.Duration(t.OldestAgeSeconds * float64(time.Second)).Round(time.Second).String()
			}
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\n", t.Table, t.Database, pending, oldest, t.Deferred, t.Confirming)
		}
		printParents(w, document.DeletionTables)
		printGivenUp(w, document.DeletionTables)
		printUnattended(w, document.DeletionTables)
		for _, t := range document.DeletionTables {
			printUsers(w, t.Users)
			printKept(w, t.Placeholders)
			t.Groups.print(w)
			printDiffs(w, t.Diffs)
		}
		if len(document.Leases) > 0 {
			_, _ = fmt.Fprintln(w, "\nLEASE\tHOLDER\tEXPIRES")
		}
		for _, l := range document.Leases {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", l.Key, l.Holder, l.ExpiresAt.UTC().Format(time.RFC3339))
		}
		_, _ = fmt.Fprintln(w, "\nJOB\tDATABASE\tSCHEDULE\tLAST TICK\tNEXT TICK\tLAST RUN\tOUTCOME\tWAITS FOR\tERROR")
		for _, j := range document.Jobs {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
				j.Kind, j.Database, words.Cell(&j.Schedule), words.Moment(j.LastTick), words.Moment(j.NextTick),
				words.Age(j.LastRun), words.Cell(j.LastOutcome), words.Cell(j.WaitingFor), words.Cell(j.LastError))
		}
		_, _ = fmt.Fprintln(w, "\n"+document.Cron.String())
	})
}

// printUsers lists users that are to be deleted.
func printUsers(w io.Writer, users []ghostuser.Waiting) {
	if len(users) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w, "\nUSER\tMOVED\tDELETED\tNULLIFIED\tREMAINING\tCHILDREN FIRST\tATTEMPTS\tNOT BEFORE\tERROR")
	for _, u := range users {
		remaining, after, first := "-", "-", strings.Join(u.ChildrenFirst, ", ")
		if u.Remaining != nil {
			remaining = fmt.Sprint(*u.Remaining)
		}
		if at := u.ConsumeAfter; at.InfinityModifier == pgtype.Infinity || at.InfinityModifier == pgtype.Finite && at.Time.After(time.Now()) {
			after = words.Instant(at)
		}
		_, _ = fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%s\t%s\t%d\t%s\t%s\n",
			u.UserID, u.Moved, u.Deleted, u.Nullified, remaining, words.Cell(&first), u.Attempts, after, words.Cell(&u.LastError))
	}
}
