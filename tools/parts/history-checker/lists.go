package main

import (
	"fmt"
	"slices"
)

// version is a state of a record, identified by its etag. It lasts from the write that created it to the next write. Etags are never
// reused.
type version struct {
	etag, value string
	// The write that created the version did not begin before this time.
	from int64
	// Of all operations that wrote or saw the version: when the first one returned, and when the last one began.
	firstRet, lastCall int64
	// Etag of the next version, if a write with this version's etag as guard created it.
	follower string
	// Numbers of its moments in the timeline.
	starts, ends int
}

// life is what is known for certain about the times of a record's creation, versions and removal.
type life struct {
	record   *record
	versions map[string]*version
	// The record existed at time `there` at the latest, and still existed at time `lastLive`.
	there, lastLive int64
	// The record was not removed before `removable`, and was removed before `gone` if that is known.
	removable, gone int64
	made, removed   int
}

func (v *version) touch(call, ret int64) {
	v.firstRet, v.lastCall = min(v.firstRet, ret), max(v.lastCall, call)
}

func lifeOf(r *record) *life {
	l := &life{record: r, versions: map[string]*version{}, there: min(r.create.ret, r.firstLive()), lastLive: r.lastLive(), removable: forever, gone: forever, removed: -1}
	for _, e := range r.events {
		l.note(e)
	}
	for _, v := range l.versions {
		if v.from == forever {
			v.from = l.unansweredWrite(v.value)
		}
	}
	for _, e := range r.events {
		l.noteRemoval(e)
	}
	return l
}

// lives returns the life of each record whose creation is in the history.
func (w *world) lives() map[*record]*life {
	lives := map[*record]*life{}
	for _, r := range w.records {
		if r.create != nil {
			lives[r] = lifeOf(r)
		}
	}
	return lives
}

func (l *life) version(etag string) *version {
	if l.versions[etag] == nil {
		l.versions[etag] = &version{etag: etag, from: forever, firstRet: forever}
	}
	return l.versions[etag]
}

func (l *life) note(e *event) {
	if e.sure && e.guard != "" && (e.verb == updates || e.verb == deletes) {
		v := l.version(e.guard)
		v.touch(e.call, e.ret)
		v.value = e.guardValue
		if e.verb == updates {
			v.follower = e.etag
		}
	}
	if e.etag == "" || !e.sure || e.verb != creates && e.verb != updates && e.verb != reads {
		return
	}
	v := l.version(e.etag)
	v.touch(e.call, e.ret)
	v.value = e.value
	if e.verb != reads {
		v.from = min(v.from, e.call)
	}
}

// unansweredWrite returns when the first write began that may have written this value and whose etag is unknown.
func (l *life) unansweredWrite(value string) int64 {
	first := int64(forever)
	for _, e := range l.record.events {
		if (e.verb == creates || e.verb == updates) && e.etag == "" && slices.Contains(e.values(), value) {
			first = min(first, e.call)
		}
	}
	if first == forever {
		// No write explains the value. The check of the record itself reports that.
		return 0
	}
	return first
}

func (l *life) noteRemoval(e *event) {
	if e.removes() {
		l.removable = min(l.removable, e.call)
	}
	isGone := e.verb == deletes && e.sure || (e.verb == isAbsent || e.verb == vanishes && e.sure) && l.there < e.call
	if isGone {
		l.gone = min(l.gone, e.ret)
	}
}

// isNotYetIn returns true if a list that lacks the record certainly happened before its creation.
func (l *life) isNotYetIn(o *operation) bool {
	return o.returned() < l.lastLive || l.removable > o.returned()
}

// isGoneIn returns true if a list that lacks the record certainly happened after its removal.
func (l *life) isGoneIn(o *operation) bool {
	return l.there < o.Call
}

// place adds the record's moments to the timeline, and orders them. A version is before another one in two cases. Either an operation with
// the first returned before the last operation with the second began, or a write with the first as guard created the second.
func (l *life) place(t *timeline, isEverGone bool) {
	r := l.record
	l.made = t.add(r.create.call, l.there, "creation of "+r.uid)
	if isEverGone {
		l.removed = t.add(max(l.lastLive, l.removable), l.gone, "removal of "+r.uid)
		t.order(l.made, l.removed)
	}
	versions := []*version{}
	for _, etag := range sortedKeys(l.versions) {
		v := l.versions[etag]
		text := fmt.Sprintf("%s %.80s (etag %s)", r.uid, v.value, etag)
		v.starts = t.add(v.from, v.firstRet, "begin of "+text)
		v.ends = t.add(0, forever, "end of "+text)
		t.order(l.made, v.starts)
		t.order(v.starts, v.ends)
		if isEverGone {
			t.order(v.ends, l.removed)
		}
		versions = append(versions, v)
	}
	for _, v := range versions {
		for _, other := range versions {
			if v != other && (v.firstRet < other.lastCall || v.follower == other.etag) {
				t.order(v.ends, other.starts)
			}
		}
	}
	for _, e := range r.events {
		// A list has its own moment in the timeline.
		if v := l.versions[e.etag]; v != nil && e.verb == reads && !e.listed {
			t.moments[v.ends].from = max(t.moments[v.ends].from, e.call)
		}
	}
}

// checkLists fails if the records in a list did not all exist in the shown versions at one moment. It also fails if several lists show
// them in different orders. It uses only orders that are certain, so it needs no search. It does not check the rest, such as the order of
// two concurrent writes that no list distinguishes.
func (w *world) checkLists(lives map[*record]*life) {
	in := w.byPlace()
	for _, key := range sortedKeys(in) {
		t := &timeline{}
		for _, r := range in[key] {
			isEverGone := lives[r].gone != forever || slices.ContainsFunc(w.lists[key], func(o *operation) bool {
				return lives[r].isGoneIn(o) && !slices.ContainsFunc(o.Members, func(member seen) bool { return member.UID == r.uid })
			})
			lives[r].place(t, isEverGone)
		}
		for _, o := range w.lists[key] {
			placeList(t, o, in[key], lives)
		}
		if found := t.contradiction(); found != "" {
			w.fail("lists "+key, len(w.lists[key]), found)
		}
	}
}

func placeList(t *timeline, o *operation, records []*record, lives map[*record]*life) {
	at := t.add(o.Call, o.returned(), fmt.Sprintf("list[client %d] of %d", o.Client, len(o.Members)))
	etags := map[string]string{}
	for _, member := range o.Members {
		etags[member.UID] = member.Etag
	}
	for _, r := range records {
		l := lives[r]
		etag, shown := etags[r.uid]
		switch {
		case shown:
			if v := l.versions[etag]; v != nil {
				t.order(v.starts, at)
				t.order(at, v.ends)
			}
			continue
		case l.isGoneIn(o):
			t.order(l.removed, at)
		case l.isNotYetIn(o):
			t.order(at, l.made)
		}
	}
}
