// Package yamlfile reads the YAML that people write for Sexton, strictly, and reports
// everything that is wrong in one go.
//
// Parse turns text into a Document, a tree of yaml.Node that knows the position of each
// value; Document.Override lays values of variables and flags over it; Document.Decode
// fills a struct, replaces ${VARIABLES} and checks keys and types; Encode leads back.
// Messages never repeat a value, because any value may be a secret that ended up in the
// wrong place.
//
// In a Document, no mapping has a key twice, and every scalar has one of the tags of
// document.go. Of the tags that a file may give only !!str is understood. Aliases and
// merge keys are refused.
package yamlfile
