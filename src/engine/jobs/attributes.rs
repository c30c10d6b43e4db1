//! The attributes of jobs, beside the table of jobs: most jobs have none.
//!
//! A job whose flags say that it has attributes is in here, with them or without: then a
//! node that knows no attributes lost them on the job's way, and another holder may be asked
//! for them, once.
//!
//! Invariant: each job here has [`JobFlags::HAD_ATTRIBUTES`]; those to be asked for have no
//! attributes, but for those of a move that this node was told of.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::{JobFlags, JobRef, Jobs};
use crate::proto::attributes::{Attributes, KeptAttributes, Tag};
use crate::proto::moved::Rest;

#[derive(Default)]
pub(super) struct AttributeTable {
    kept: BTreeMap<JobRef, KeptAttributes>,
    /// Jobs whose attributes were lost, and nobody was asked for them yet.
    lost: BTreeSet<JobRef>,
    /// Notes of jobs whose attributes are not known: no record has them before those are, as it
    /// would be taken for all that there is.
    notes: BTreeMap<JobRef, Box<[u8]>>,
    /// From which slot on these are searched for somebody to ask; `None` while nothing has
    /// changed since it was done.
    search_from: Option<u32>,
}

impl AttributeTable {
    /// A job is new here that has attributes, or had some.
    pub fn begin(&mut self, r: JobRef, attributes: Option<KeptAttributes>) {
        if attributes.as_ref().is_none_or(|some| some.as_attributes().rest() == Rest::Lost) {
            self.lost.insert(r);
            let from = self.search_from.unwrap_or(u32::MAX);
            self.search_from = Some(from.min(r.slot()));
        }
        if let Some(attributes) = attributes {
            self.kept.insert(r, attributes);
        }
    }

    pub fn end(&mut self, r: JobRef) {
        self.kept.remove(&r);
        self.lost.remove(&r);
        self.notes.remove(&r);
    }
}

impl Jobs {
    /// What is known of a job's attributes; `None` where it had some that are not known here.
    pub fn attributes(&self, r: JobRef) -> Option<Attributes<'_>> {
        if self.table[r].flags.contains(JobFlags::HAD_ATTRIBUTES) {
            let kept = self.attributes.kept.get(&r).map(KeptAttributes::as_attributes);
            kept.filter(|attributes| attributes.rest() == Rest::Known)
        } else {
            Some(Attributes::default())
        }
    }

    /// What a record of the job has, be it all or not.
    pub fn record_attributes(&self, r: JobRef) -> Attributes<'_> {
        if self.table[r].flags.contains(JobFlags::HAD_ATTRIBUTES) {
            self.attributes.kept.get(&r).map(KeptAttributes::as_attributes).unwrap_or_default()
        } else {
            Attributes::default()
        }
    }

    /// The facts of a job's death, in force or history; see [`crate::proto::facts`].
    pub fn facts(&self, r: JobRef) -> Option<Cow<'_, [u8]>> {
        self.record_attributes(r).find(Tag::FACTS)
    }

    /// Why a client gave the job back last.
    pub fn note(&self, r: JobRef) -> Option<Cow<'_, [u8]>> {
        let waiting = || self.attributes.notes.get(&r).map(|note| Cow::Borrowed(&**note));
        self.record_attributes(r).note().or_else(waiting)
    }

    /// The note of a job whose attributes are not known, until they are.
    pub fn keep_note(&mut self, r: JobRef, note: &[u8]) {
        self.attributes.notes.insert(r, note.into());
    }

    /// The note that waited for a job's attributes.
    pub fn take_note(&mut self, r: JobRef) -> Option<Box<[u8]>> {
        self.attributes.notes.remove(&r)
    }

    /// A job gets attributes: of another record, or of a move.
    pub fn set_attributes(&mut self, r: JobRef, attributes: KeptAttributes) {
        let had_some = self.table[r].flags.contains(JobFlags::HAD_ATTRIBUTES);
        let (stamp, rest) = attributes.as_attributes().stamp_and_rest();
        if self.move_stamp(r) != stamp {
            match stamp {
                Some(stamp) => self.moves.begin(r, stamp),
                None => self.moves.end(r),
            }
        }
        if rest == Rest::Known {
            self.attributes.lost.remove(&r);
        }
        self.attributes.kept.insert(r, attributes);
        if !had_some {
            let job = &mut self.table[r];
            job.flags = job.flags.with(JobFlags::HAD_ATTRIBUTES);
        }
    }

    /// There may be somebody to ask for attributes who was not there before.
    pub fn search_for_attributes(&mut self) {
        if !self.attributes.lost.is_empty() {
            self.attributes.search_from = Some(0);
        }
    }

    /// Whether [`Jobs::next_without_attributes`] may have some.
    pub fn is_searching_for_attributes(&self) -> bool {
        self.attributes.search_from.is_some()
    }

    /// The next jobs, `max` at most, whose attributes were lost, and of which nobody was asked
    /// yet.
    pub fn next_without_attributes(&mut self, max: usize) -> Vec<JobRef> {
        let Some(from) = self.attributes.search_from.take() else { return Vec::new() };
        let from = JobRef::from_slot(from);
        let jobs: Vec<JobRef> = self.attributes.lost.range(from..).take(max).copied().collect();
        if let Some(last) = jobs.last().filter(|_| jobs.len() == max) {
            self.attributes.search_from = Some(last.slot() + 1);
        }
        jobs
    }

    /// Somebody was asked for the attributes of a job; it is not done again.
    pub fn note_asked_for_attributes(&mut self, r: JobRef) {
        self.attributes.lost.remove(&r);
    }

    /// Panics unless the jobs here have the flag.
    pub(super) fn check_attributes(&self) {
        let AttributeTable { kept, lost, notes, .. } = &self.attributes;
        for r in kept.keys().chain(lost).chain(notes.keys()) {
            let job = self.table.get(*r).expect("attributes go with their job");
            assert!(job.flags.contains(JobFlags::HAD_ATTRIBUTES), "{} has attributes", job.id);
        }
        let has_some = |r: &JobRef| self.attributes(*r).is_some();
        assert!(!lost.iter().any(has_some), "who has attributes lost none");
        assert!(!notes.keys().any(has_some), "who has attributes has its note among them");
    }
}
