//! The pool over pretended blocks, whose streams pass fences when told to.

use std::cell::Cell;
use std::rc::Rc;

use super::*;

/// A block, by number; tells when it is freed.
#[derive(Debug)]
struct Piece {
    number: usize,
    size: u64,
    freed: Rc<Cell<usize>>,
}

impl Block for Piece {
    fn size(&self) -> u64 {
        self.size
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.freed.set(self.freed.get() + 1);
    }
}

/// A stream's fence: passed, not yet, or lost.
#[derive(Clone)]
struct Point(Rc<Cell<Option<bool>>>, Rc<Cell<usize>>);

fn lost() -> Error {
    Error::Load { path: "a stream".into(), reason: "lost".into() }
}

impl Fence for Point {
    fn passed(&self) -> Result<bool, Error> {
        self.0.get().ok_or_else(lost)
    }

    fn wait(&self) -> Result<(), Error> {
        self.1.set(self.1.get() + 1);
        self.0.get().ok_or_else(lost)?;
        self.0.set(Some(true));
        Ok(())
    }
}

/// What makes pieces and points, and counts.
#[derive(Default)]
struct World {
    made: Cell<usize>,
    freed: Rc<Cell<usize>>,
    waits: Rc<Cell<usize>>,
}

impl World {
    fn piece(&self, size: u64) -> Piece {
        self.made.set(self.made.get() + 1);
        Piece { number: self.made.get(), size, freed: Rc::clone(&self.freed) }
    }

    fn point(&self) -> Point {
        Point(Rc::new(Cell::new(Some(false))), Rc::clone(&self.waits))
    }
}

#[test]
fn a_block_comes_back_only_when_every_stream_has_passed() {
    let (world, pool) = (World::default(), Pool::new(1 << 30));
    let (a, b) = (world.point(), world.point());
    pool.keep(world.piece(4096), vec![a.clone(), b.clone()]).unwrap();
    assert!(pool.take(4096).unwrap().is_none());
    a.0.set(Some(true));
    assert!(pool.take(4096).unwrap().is_none());
    b.0.set(Some(true));
    assert_eq!(pool.take(4096).unwrap().unwrap().number, 1);
    assert_eq!((world.waits.get(), pool.bytes()), (0, 0));
}

#[test]
fn a_host_that_runs_ahead_waits_for_the_oldest() {
    let (world, pool) = (World::default(), Pool::new(1 << 30));
    for _ in 0..WAITING {
        pool.keep(world.piece(8192), vec![world.point()]).unwrap();
    }
    assert!(pool.take(4096).unwrap().is_none(), "none of them fits");
    assert_eq!(pool.take(8192).unwrap().unwrap().number, 1);
    assert_eq!(world.waits.get(), 1);
}

#[test]
fn little_is_lost_to_a_larger_block() {
    let (world, pool) = (World::default(), Pool::<_, Point>::new(1 << 30));
    pool.keep(world.piece(9000), vec![]).unwrap();
    assert!(pool.take(7000).unwrap().is_none());
    assert!(pool.take(9001).unwrap().is_none());
    assert!(pool.take(8001).unwrap().is_some());
}

#[test]
fn past_its_most_a_pool_frees_what_has_been_waited_for() {
    let (world, pool) = (World::default(), Pool::new(10_000));
    pool.keep(world.piece(6000), vec![world.point()]).unwrap();
    assert_eq!((world.freed.get(), world.waits.get()), (0, 0));
    pool.keep(world.piece(6000), vec![world.point()]).unwrap();
    assert_eq!((world.freed.get(), world.waits.get(), pool.bytes()), (1, 1, 6000));
    assert!(pool.empty().unwrap());
    assert_eq!((world.freed.get(), world.waits.get(), pool.bytes()), (2, 2, 0));
    assert!(!pool.empty().unwrap());
}

#[test]
fn what_could_not_be_waited_for_is_never_used_again_nor_freed() {
    let (world, pool) = (World::default(), Pool::new(1 << 30));
    let point = world.point();
    for wait in [false, true] {
        pool.keep(world.piece(4096), vec![point.clone()]).unwrap();
        point.0.set(None);
        let error = if wait { pool.empty().err() } else { pool.take(4096).err() };
        assert!(error.is_some_and(|e| e.to_string().contains("lost")));
        // Said once; the block is nobody's.
        assert!(pool.take(4096).unwrap().is_none() && !pool.empty().unwrap());
        assert_eq!((world.freed.get(), pool.bytes()), (0, 0));
        point.0.set(Some(false));
    }
}
