package operator

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"sexton/internal/components"
	"sexton/internal/database"
	"sexton/internal/installation"
	"sexton/internal/render"
)

// Reason is one cause of failures of a source, with its failures.
type Reason struct {
	// Key names it in addresses. It stays the same while the cause does.
	Key      string
	Source   string
	Database string
	// Text is the error of the first one.
	Text string
	// Locked reports that rows only wait for locks of other sessions: these are no
	// failures.
	Locked bool
	// GivenUp reports that none of them is tried again.
	GivenUp bool
	// More reports that there are more rows of the source than were looked at, perhaps of
	// this reason.
	More bool
	// First and Last are when the first and the last of them came in or, where that is
	// known, failed; zero where it is unknown.
	First, Last time.Time
	Failures    []components.Failure
}

// variable finds keys, rows and processes, which have digits in their names and differ
// from one failure to the next, and SQLSTATEs, which stay: they tell causes apart.
// sql/functions/base/reasons.sql has the same expression.
var variable = regexp.MustCompile(`(SQLSTATE [0-9A-Z]{5})|[0-9A-Za-z-]*[0-9][0-9A-Za-z-]*`)

// cause is an error without the parts that differ between rows.
func cause(text string) string {
	table, rest, found := strings.Cut(text, ": ")
	if !found {
		table, rest = "", text // It names no table first.
	}
	return table + variable.ReplaceAllString(rest, "$1…")
}

// Reasons are the failures by table, SQLSTATE and message, failures before what only
// waits for a lock, and those with the most rows first.
func (f Failures) Reasons() (reasons []Reason) {
	at := map[string]int{}
	for _, failure := range f.Failures {
		text := failure.Source + "\x00" + failure.Database + "\x00" + cause(failure.Error)
		if failure.GivenUp {
			text += "\x00given up"
		}
		sum := sha256.Sum256([]byte(text))
		key := hex.EncodeToString(sum[:6])
		i, known := at[key]
		if !known {
			i = len(reasons)
			at[key] = i
			reasons = append(reasons, Reason{
				Key: key, Source: failure.Source, Database: failure.Database, Text: failure.Error,
				Locked: failure.Locked(), GivenUp: failure.GivenUp, More: slices.Contains(f.Capped, failure.Source),
			})
		}
		reason := &reasons[i]
		reason.Failures = append(reason.Failures, failure)
		if !failure.Since.IsZero() && (reason.First.IsZero() || failure.Since.Before(reason.First)) {
			reason.First = failure.Since
		}
		if failure.Since.After(reason.Last) {
			reason.Last = failure.Since
		}
	}
	slices.SortStableFunc(reasons, func(a, b Reason) int {
		if a.Locked != b.Locked {
			if a.Locked {
				return 1
			}
			return -1
		}
		return cmp.Compare(len(b.Failures), len(a.Failures))
	})
	return reasons
}

// RetryReason has the rows tried again that fail for one reason, as many as one look
// shows, and says what came of it.
func RetryReason(ctx context.Context, all *installation.Connections, key string, by database.Change) (string, error) {
	found, err := ReadFailures(ctx, all, components.FailureWindow)
	if err != nil {
		return "", err
	}
	reasons := found.Reasons()
	at := slices.IndexFunc(reasons, func(r Reason) bool { return r.Key == key })
	if at < 0 {
		return "", components.Refuse("no row has this failure any more")
	}
	done, left := 0, 0
	for _, failure := range reasons[at].Failures {
		_, err := RetryFailures(ctx, all, components.Retry{
			Source: failure.Source, Database: failure.Database,
			ID: failure.ID,
		}, by)
		switch _, refused := errors.AsType[*components.RefusedError](err); {
		case refused:
			left++ // It is done, or a worker has it in hand.
		case err != nil:
			return "", err
		default:
			done++
		}
	}
	said := render.Counted(done, "row") + " due now"
	if left > 0 {
		said += ", " + render.Counted(left, "row") + " done or being processed"
	}
	return said, nil
}
