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

// Reason is one cause of failures, with its failures.
type Reason struct {
	// Key identifies the reason in URLs. It is a hash of the cause.
	Key      string
	Source   string
	Database string
	// Text is the error of the first failure.
	Text string
	// Locked reports that the rows only wait for locks of other sessions and have not
	// failed.
	Locked bool
	// GivenUp reports that none of the rows is retried.
	GivenUp bool
	// More reports that the source has more failures than were read. They may have this
	// reason.
	More bool
	// First and Last are the earliest and the latest time of the failures, or zero if it
	// is unknown.
	First, Last time.Time
	Failures    []components.Failure
}

// variable matches the parts that differ between failures with the same cause: names with
// digits, such as keys, rows and processes. It also matches SQLSTATEs, which cause does
// not remove. sql/functions/base/reasons.sql has the same expression.
var variable = regexp.MustCompile(`(SQLSTATE [0-9A-Z]{5})|[0-9A-Za-z-]*[0-9][0-9A-Za-z-]*`)

// cause returns an error without the parts that differ between rows.
func cause(text string) string {
	table, message, found := strings.Cut(text, ": ")
	if !found {
		// The error does not begin with a table.
		table, message = "", text
	}
	return table + variable.ReplaceAllString(message, "$1…")
}

// Reasons groups the failures by table, SQLSTATE and message. Failures come before rows
// that wait for a lock, and reasons with more rows come first.
func (f Failures) Reasons() (reasons []Reason) {
	index := map[string]int{}
	for _, failure := range f.Failures {
		text := failure.Source + "\x00" + failure.Database + "\x00" + cause(failure.Error)
		if failure.GivenUp {
			text += "\x00given up"
		}
		sum := sha256.Sum256([]byte(text))
		key := hex.EncodeToString(sum[:6])
		i, known := index[key]
		if !known {
			i = len(reasons)
			index[key] = i
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

// RetryReason retries the rows with one reason, up to FailureWindow, and returns a
// summary.
func RetryReason(ctx context.Context, all *installation.Connections, key string, by database.Change) (string, error) {
	found, err := ReadFailures(ctx, all, components.FailureWindow)
	if err != nil {
		return "", err
	}
	reasons := found.Reasons()
	i := slices.IndexFunc(reasons, func(r Reason) bool { return r.Key == key })
	if i < 0 {
		return "", components.Refuse("no row has this failure anymore")
	}
	done, left := 0, 0
	for _, failure := range reasons[i].Failures {
		_, err := RetryFailures(ctx, all, components.Retry{
			Source: failure.Source, Database: failure.Database,
			ID: failure.ID,
		}, by)
		switch _, refused := errors.AsType[*components.RefusedError](err); {
		case refused:
			// The row is already deleted, or a worker is processing it.
			left++
		case err != nil:
			return "", err
		default:
			done++
		}
	}
	text := render.Counted(done, "row") + " due now"
	if left > 0 {
		text += ", " + render.Counted(left, "row") + " done or being processed"
	}
	return text, nil
}
