use super::*;

fn node(own: &[u32], children: &[&[u32]], has_parent: bool) -> PmixNode {
    PmixNode::new(&NodePlace {
        ranks: own.to_vec(),
        has_parent,
        children: children
            .iter()
            .map(|c| c.iter().copied().collect())
            .collect(),
    })
}

fn set(ranks: &[u32]) -> RankSet {
    ranks.iter().copied().collect()
}

fn outputs(node: &mut PmixNode) -> Vec<Output> {
    std::iter::from_fn(|| node.poll_output()).collect()
}

fn joined(ranks: &[u32], status: i32, data: &[u8]) -> Vec<u8> {
    let fence = Part::new(&set(ranks), 0, status, data);
    Message::Joined { fence }.encode()
}

fn complete(ranks: &[u32], status: i32, data: &[u8]) -> Vec<u8> {
    let fence = Part::new(&set(ranks), 0, status, data);
    Message::Complete { fence }.encode()
}

fn fenced(id: u64, status: i32, data: &[u8]) -> Output {
    let data = data.to_vec();
    Output::Fenced { id, status, data }
}

#[test]
fn a_fence_turns_where_all_are_below() {
    let mut middle = node(&[2, 3], &[&[4, 5], &[6]], true);
    // Of this subtree only: the parent hears nothing of it.
    middle.join(7, set(&[3, 6]), b"own".to_vec());
    assert!(outputs(&mut middle).is_empty() && !middle.is_idle());
    let from = TreeLink::Child(1);
    middle
        .handle_tree(from, &joined(&[3, 6], 0, b"six"))
        .unwrap();
    let down = Output::ToChild {
        child: 1,
        bytes: complete(&[3, 6], 0, b"ownsix").into(),
    };
    assert_eq!(outputs(&mut middle), [down, fenced(7, 0, b"ownsix")]);
    assert!(middle.is_idle());
    // Of others, too; and this node does not belong to it.
    middle
        .handle_tree(from, &joined(&[0, 6], -3, b"six"))
        .unwrap();
    let up = Output::ToParent(joined(&[0, 6], -3, b"six").into());
    assert_eq!(outputs(&mut middle), [up]);
    let down = complete(&[0, 6], -3, b"zerosix");
    middle.handle_tree(TreeLink::Parent, &down).unwrap();
    let bytes = down.into();
    assert_eq!(outputs(&mut middle), [Output::ToChild { child: 1, bytes }]);
    assert!(middle.is_idle());
}

#[test]
fn fences_of_the_same_follow_each_other() {
    let mut root = node(&[0], &[&[1]], false);
    let from = TreeLink::Child(0);
    root.handle_tree(from, &joined(&[0, 1], 0, b"b1")).unwrap();
    root.handle_tree(from, &joined(&[0, 1], 0, b"b2")).unwrap();
    root.join(1, set(&[0, 1]), b"a1".to_vec());
    root.join(2, set(&[0, 1]), b"a2".to_vec());
    let got: Vec<_> = outputs(&mut root)
        .into_iter()
        .filter(|o| matches!(o, Output::Fenced { .. }))
        .collect();
    assert_eq!(got, [fenced(1, 0, b"a1b1"), fenced(2, 0, b"a2b2")]);
}

#[test]
fn questions_find_their_way_and_answers_theirs() {
    let mut root = node(&[0], &[&[1, 2], &[3]], false);
    root.fetch(5, 2);
    let question = Message::Ask {
        asker: 0,
        ticket: 5,
        rank: 2,
    };
    let bytes = Arc::new(question.encode());
    let to_child = |child, bytes: &Arc<Vec<u8>>| Output::ToChild {
        child,
        bytes: Arc::clone(bytes),
    };
    assert_eq!(outputs(&mut root), [to_child(0, &bytes)]);
    let mut leaf = node(&[1, 2], &[], true);
    leaf.handle_tree(TreeLink::Parent, &bytes).unwrap();
    assert_eq!(outputs(&mut leaf), [Output::Lookup { id: 0, rank: 2 }]);
    leaf.put_by(0, 0, b"blob".to_vec());
    let [Output::ToParent(answer)] = &outputs(&mut leaf)[..] else {
        panic!("the answer goes up");
    };
    root.handle_tree(TreeLink::Child(0), answer).unwrap();
    let (id, data) = (5, b"blob".to_vec());
    let fetched = |status, data| Output::Fetched { id, status, data };
    assert_eq!(outputs(&mut root), [fetched(0, data)]);
    // Who is not there is not found, from wherever he is asked for.
    root.fetch(5, 9);
    assert_eq!(outputs(&mut root), [fetched(NOT_FOUND, Vec::new())]);
    // From one child to another.
    let asked = Message::Ask {
        asker: 3,
        ticket: 8,
        rank: 1,
    };
    root.handle_tree(TreeLink::Child(1), &asked.encode())
        .unwrap();
    assert_eq!(outputs(&mut root), [to_child(0, &Arc::new(asked.encode()))]);
    assert!(root.is_idle() && leaf.is_idle());
}

#[test]
fn those_who_will_not_come_are_named() {
    let mut root = node(&[0, 1], &[&[2, 3], &[4]], false);
    let none = |_: u32| false;
    assert_eq!(root.waits_for(|_| true, |_| true), None, "no fence is open");
    let all: Vec<u32> = (0..5).collect();
    root.handle_tree(TreeLink::Child(0), &joined(&all, 0, b""))
        .unwrap();
    assert_eq!(root.waits_for(none, |_| false), None);
    assert_eq!(root.waits_for(|rank| rank == 1, |_| false), Some(1));
    assert_eq!(root.waits_for(none, |child| child == 1), Some(4));
    assert_eq!(root.waits_for(none, |child| child == 0), None, "it came");
    // One that belongs to another fence only.
    let before = root.version();
    root.handle_tree(TreeLink::Child(1), &joined(&all, 0, b""))
        .unwrap();
    assert_ne!(root.version(), before);
    assert_eq!(root.waits_for(none, |_| true), None);
}

#[test]
fn impossible_messages_are_errors() {
    let mut middle = node(&[1], &[&[2]], true);
    let (parent, child) = (TreeLink::Parent, TreeLink::Child(0));
    let refused = |node: &mut PmixNode, from, bytes: &[u8]| node.handle_tree(from, bytes).is_err();
    assert!(refused(&mut middle, child, &joined(&[0, 1], 0, b"")));
    assert!(refused(
        &mut middle,
        TreeLink::Child(1),
        &joined(&[2], 0, b"")
    ));
    assert!(refused(&mut middle, parent, &complete(&[0, 1], 0, b"")));
    assert!(refused(&mut middle, parent, &joined(&[0, 1], 0, b"")));
    assert!(refused(&mut middle, child, &complete(&[0, 2], 0, b"")));
    assert!(refused(&mut middle, child, b"?"));
    // Before all below have joined nothing can be complete.
    middle.join(0, set(&[0, 1, 2]), Vec::new());
    assert!(refused(&mut middle, parent, &complete(&[0, 1, 2], 0, b"")));
    middle.join(1, set(&[0]), Vec::new());
    let refused = fenced(1, NOT_FOUND, b"");
    assert_eq!(outputs(&mut middle), [refused], "it does not belong to it");
}
