package extdiff

import "fmt"

const (
	// mostBytes is the greatest value of the columns for offset and size.
	mostBytes = 1<<31 - 1
	// pieceBytes is how much of a text one row of a stream has.
	pieceBytes = 1 << 18
)

// Key is where the object of a diff is.
func Key(mergeRequestID, diffID int64) string {
	return fmt.Sprintf("%s%d/%s", folderPrefix, mergeRequestID, objectName(diffID))
}

const (
	rootPrefix   = "merge_request_diffs/"
	folderPrefix = rootPrefix + "mr-"
	namePrefix   = "diff-"
)

// objectName is the last part of the key, which the column external_diff has.
func objectName(diffID int64) string { return fmt.Sprintf("%s%d", namePrefix, diffID) }
