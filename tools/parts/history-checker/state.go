package main

import (
	"fmt"
	"slices"
	"strings"
)

const (
	notYet = iota
	isThere
	isGone
)

// recordState is the state of a record, which is created once, changed while it exists, and removed for good.
type recordState struct {
	phase int
	value string
	// among contains the possible values, one per line; empty if value is known.
	among string
	// etag is empty after a write without an answer.
	etag string
}

func (s recordState) String() string {
	switch s.phase {
	case notYet:
		return "not made yet"
	case isThere:
		if s.among != "" {
			return fmt.Sprintf("value is one of %q", strings.Split(s.among, "\n"))
		}
		return fmt.Sprintf("value=%.80s etag=%s", s.value, s.etag)
	}
	return "gone"
}

func written(e *event) recordState {
	return recordState{isThere, e.value, strings.Join(e.among, "\n"), e.etag}
}

func (s recordState) canHave(value string) bool {
	if s.among == "" {
		return s.value == value
	}
	return slices.Contains(strings.Split(s.among, "\n"), value)
}

func (s recordState) meets(e *event) bool {
	if s.phase != isThere {
		return false
	}
	if e.guard == "" {
		return true
	}
	if s.etag == "" {
		return s.canHave(e.guardValue)
	}
	return s.etag == e.guard
}

// step is the specification of a record: whether the event is possible in this state, and the next state.
func (e *event) step(state any) (bool, any) {
	s := state.(recordState)
	switch e.verb {
	case creates:
		if s.phase != notYet {
			return !e.sure, s
		}
		return true, written(e)
	case updates:
		if !s.meets(e) {
			return !e.sure, s
		}
		return true, written(e)
	case deletes:
		if !s.meets(e) {
			return !e.sure, s
		}
		return true, recordState{phase: isGone}
	case vanishes:
		if s.phase == isThere {
			return true, recordState{phase: isGone}
		}
		return true, s
	case reads:
		if s.phase != isThere || !s.canHave(e.value) || s.etag != "" && e.etag != "" && s.etag != e.etag {
			return false, s
		}
		s.value, s.among = e.value, ""
		if s.etag == "" {
			s.etag = e.etag
		}
		return true, s
	case isPresent:
		return s.phase == isThere, s
	case isAbsent:
		return s.phase != isThere, s
	case isStale:
		return s.phase == isThere && (s.etag == "" || s.etag != e.guard), s
	}
	return false, s
}
