(** Weak sequences: reversal, height of normal forms, normal form at no greater cost, and what follows for the search. *)
From mathcomp Require Import all_ssreflect zify.
From Redistrib Require Import Spec.Sequences Spec.Weak Thm.Arith Thm.WeakDiamonds.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

(** ** Sequences in general *)
Section Generic.
Variable S : Type.
Implicit Types (x y z : S) (p q : trace S) (step : kind -> S -> S -> Prop).

Lemma run_cat step x p y q z : run step x p y -> run step y q z -> run step x (p ++ q) z.
Proof. by elim: p x => [|[k x1] p IH] x /= => [-> // | [st /IH R] /R]. Qed.

Lemma run_split step x p q z : run step x (p ++ q) z -> exists y, run step x p y /\ run step y q z.
Proof.
elim: p x => [|[k x1] p IH] x /=; first by exists x.
by move=> [st /IH [y [R1 R2]]]; exists y.
Qed.

Lemma cost_cat step pr x p y q : run step x p y -> cost pr x (p ++ q) = cost pr x p + cost pr y q.
Proof. by elim: p x => [|[k x1] p IH] x /= => [-> // | [_ /IH ->]]; rewrite addnA. Qed.

Lemma height_cat step sz x p y q : run step x p y -> height sz x (p ++ q) = maxn (height sz x p) (height sz y q).
Proof.
elim: p x => [|[k x1] p IH] x /= => [-> | [_ /IH ->]]; last by rewrite maxnA.
by rewrite maxn0; case: q => [|[k z] q] /=; rewrite ?maxn0 ?maxnA ?maxnn.
Qed.

Lemma height_ge sz x p : sz x <= height sz x p.
Proof. by case: p => [|[k z] p] /=; rewrite leq_max leqnn. Qed.

Lemma kinds_cat p q : kinds (p ++ q) = kinds p ++ kinds q.
Proof. exact: map_cat. Qed.

(** If slices never enlarge, middle steps keep and gathers never shrink the tile, a normal form is no higher than its ends. *)
Lemma normal_height step sz x p y :
  (forall x y, step DynSlice x y -> sz y <= sz x) -> (forall k x y, is_middle k -> step k x y -> sz y = sz x) ->
  (forall x y, step AllGather x y -> sz x <= sz y) ->
  run step x p y -> normal (kinds p) -> height sz x p <= maxn (sz x) (sz y).
Proof.
move=> hS hM hG R [a [b [c [E aS bM cG]]]].
have [pa [pb [pc [Ep Ea Eb Ec]]]] : exists pa pb pc, [/\ p = pa ++ pb ++ pc, kinds pa = a, kinds pb = b & kinds pc = c].
  exists (take (size a) p), (take (size b) (drop (size a) p)), (drop (size b) (drop (size a) p)).
  rewrite !cat_take_drop /kinds !(map_take, map_drop); split=> //.
  - by rewrite -/(kinds p) E take_size_cat.
  - by rewrite -/(kinds p) E drop_size_cat // take_size_cat.
  - by rewrite -/(kinds p) E drop_size_cat // drop_size_cat.
subst a b c p => {E}.
have [u [Ra /run_split [v [Rb Rc]]]] := run_split R.
rewrite (height_cat _ _ Ra) (height_cat _ _ Rb).
have Ha : height sz x pa <= sz x /\ sz u <= sz x.
  elim: pa x Ra aS {R} => [|[k x1] pa IH] x /= => [-> _ | [st Ra] /andP [kS aS]]; first by rewrite maxn0.
  have le : sz x1 <= sz x by apply: hS; case: k st kS.
  by case: (IH x1) => // h1 h2; split; [rewrite geq_max leqnn (leq_trans h1) | apply: leq_trans h2 le].
have Hb : height sz u pb <= sz u /\ sz v = sz u.
  elim: pb u Rb bM {R Ra Ha} => [|[k x1] pb IH] u /= => [-> _ | [st Rb] /andP [kS bM]]; first by rewrite maxn0.
  have le : sz x1 = sz u by apply: hM st.
  by case: (IH x1) => // h1 h2; split; [rewrite geq_max leqnn -le | rewrite h2].
have Hc : height sz v pc <= sz y.
  elim: pc v Rc cG {R Rb Hb} => [|[k x1] pc IH] v /= => [-> _ | [st Rc] /andP [kS cG]]; first by rewrite maxn0.
  have le : sz v <= sz x1 by apply: hG; case: k st kS.
  by rewrite geq_max IH // andbT (leq_trans le) // (leq_trans (height_ge _ _ pc)) // IH.
case: Ha Hb => [h1 h2] [h3 h4]; rewrite !geq_max !leq_max h1 Hc orbT (leq_trans h3 h2) /=; lia.
Qed.
End Generic.

Definition flip k := match k with DynSlice => AllGather | AllGather => DynSlice | k => k end.

Section Weak.
Variables (r : nat) (s : shape r) (N : nat).
Implicit Types (c d e x y z : shape r) (i j : 'I_r) (p q : trace (shape r)).
Local Notation node := (node s N).
Local Notation wstep := (wstep s N).
Local Notation wrun := (wrun s N).
Local Notation seg := (seg s N).
Local Notation ostep := (ostep s N).

(** ** One step *)
Lemma wstep_flip w k x y : wstep w k x y -> wstep w (flip k) y x.
Proof.
case: k => -[xN yN] //= H; split=> //.
by case: H => i [j [m [d [ij mF -> ->]]]]; exists j, i, m, d; rewrite eq_sym.
Qed.

Lemma wstep_vol_slice w x y : wstep w DynSlice x y -> vol y <= vol x.
Proof. by case=> _ _ [i [m [mF ->]]]; rewrite vol_mul leq_pmull // (factor_gt0 mF). Qed.

Lemma wstep_vol_gather w x y : wstep w AllGather x y -> vol x <= vol y.
Proof. by move/wstep_flip/wstep_vol_slice. Qed.

Lemma wstep_vol_middle w k x y : is_middle k -> wstep w k x y -> vol y = vol x.
Proof. by case: k => // _ [_ _] // [i [j [m [d [_ _ -> ->]]]]]; rewrite !vol_mul. Qed.

Lemma wstep_nopermute w x y : wstep w AllPermute x y -> False.
Proof. by case. Qed.

Lemma meetC c d : meet c d = meet d c.
Proof. by apply/ffunP=> k; rewrite !ffunE minnC. Qed.

Lemma oprice_alltoall_sym M x y : vol x = vol y -> oprice M AllToAll x y = oprice M AllToAll y x.
Proof. by move=> E; rewrite /oprice eq_sym; case: ifP => // _; case: M; rewrite /= ?E // meetC. Qed.

(** Lemma 4.7, weak, falling edge: from the rising edge read backwards. *)
Lemma falling w x y z : wstep w AllToAll x y -> wstep w DynSlice y z ->
  exists w2 w1, [/\ ostep w DynSlice x w2, ostep w DynSlice w2 w1, ostep w AllToAll w1 z &
    [/\ w = Single -> x = w2 \/ w2 = w1 & forall M, oprice M AllToAll w1 z <= price M AllToAll x y]].
Proof.
move=> xy yz; have [w1 [w2 [A G1 G2 [sgl _ _ PA]]]] := rising (wstep_flip yz) (wstep_flip xy).
have rev k u v : ostep w k u v -> ostep w (flip k) v u by case=> [->|/wstep_flip]; [left | right].
exists w2, w1; split; try exact: (rev _ _ _ _); first exact: rev G2; first exact: rev G1.
  exact: rev A.
split=> [/sgl [] -> | M]; [by right | by left | ].
have Ez : vol w1 = vol z by case: A => [->|/(wstep_vol_middle (k := AllToAll) isT)].
rewrite oprice_alltoall_sym //; apply: leq_trans (PA M) _.
have Exy : vol x = vol y by move/(wstep_vol_middle (k := AllToAll) isT): xy.
by case: M; rewrite /= -?Exy // meetC.
Qed.

(** ** Normal form, by induction on the sequence, prepending one step *)
Lemma seg_nil w K x : seg w K x [::] x. Proof. by []. Qed.

Lemma seg_cat w K x p y q z : seg w K x p y -> seg w K y q z -> seg w K x (p ++ q) z.
Proof. by move=> [R1 k1] [R2 k2]; split; [apply: run_cat R1 R2 | rewrite kinds_cat all_cat k1]. Qed.

Lemma seg_cons w (K : kind -> bool) k x y p z : wstep w k x y -> K k -> seg w K y p z -> seg w K x ((k, y) :: p) z.
Proof. by move=> st kk [R a]; split; rewrite /= ?kk. Qed.

Lemma seg_inv w K k x y p z : seg w K x ((k, y) :: p) z -> [/\ wstep w k x y, K k & seg w K y p z].
Proof. by case=> [[st R] /= /andP [kk a]]. Qed.

(** An idle or real step, prepended. *)
Lemma seg_ocons w (K : kind -> bool) k x y p z : K k -> ostep w k x y -> seg w K y p z ->
  exists q, [/\ seg w K x q z, size q <= (size p).+1 &
    forall M, wcost M x q <= oprice M k x y + wcost M y p].
Proof.
move=> kk st sg; rewrite /oprice; case: eqP => [E | ne]; first by exists p; split; rewrite ?E.
case: st => [/ne // | st]; exists ((k, y) :: p); split=> //; exact: seg_cons.
Qed.

(** The same with an idle or real step at the end. *)
Lemma seg_one w (K : kind -> bool) k x y : K k -> ostep w k x y ->
  exists q, [/\ seg w K x q y, size q <= 1 & forall M, wcost M x q <= oprice M k x y].
Proof.
move=> kk st; have [q [sq qs qc]] := seg_ocons kk st (seg_nil w K y).
by exists q; split=> // M; rewrite -[X in _ <= X]addn0; apply: qc.
Qed.

Lemma wcost_cat w M x p y q : wrun w x p y -> wcost M x (p ++ q) = wcost M x p + wcost M y q.
Proof. exact: cost_cat. Qed.

Lemma alltoall_slices w x y p z : ostep w AllToAll x y -> seg w is_slice y p z ->
  exists u q, [/\ seg w is_slice x q u, ostep w AllToAll u z &
    forall M, oprice M AllToAll u z <= oprice M AllToAll x y].
Proof.
elim: p x y => [|[k y1] p IH] x y st; first by case=> /= <- _; exists x, [::].
case: (eqVneq x y) => [-> sg | xy].
  exists z, ((k, y1) :: p); split=> // [|M]; first by left.
  by rewrite /oprice eqxx.
case/seg_inv; case: k => // yS _ sg; case: st => [E|st]; first by rewrite E eqxx in xy.
have [w2 [w1 [S1 S2 A [_ PA]]]] := falling st yS.
have [u [q [sq Au PAu]]] := IH _ _ A sg.
have [q2 [sq2 _ _]] := seg_ocons (K := is_slice) (k := DynSlice) isT S2 sq.
have [q1 [sq1 _ _]] := seg_ocons (K := is_slice) (k := DynSlice) isT S1 sq2.
exists u, q1; split=> // M; apply: leq_trans (PAu M) _.
by rewrite [X in _ <= X]/oprice (negPf xy); apply: PA.
Qed.

Lemma gather_slices w x y p z : ostep w AllGather x y -> seg w is_slice y p z ->
  exists d1 d2 p1 p2, [/\ seg w is_slice x p1 d1, seg w is_alltoall d1 p2 d2, ostep w AllGather d2 z &
    forall M, wcost M d1 p2 + oprice M AllGather d2 z <= oprice M AllGather x y].
Proof.
elim: p x y => [|[k y1] p IH] x y st; first by case=> /= <- _; exists x, x, [::], [::]; split=> // M; rewrite add0n.
case: (eqVneq x y) => [-> sg | xy].
  exists z, z, ((k, y1) :: p), [::]; split=> // [|M]; first by left.
  by rewrite /oprice !eqxx.
case/seg_inv; case: k => // yS _ sg; case: st => [E|st]; first by rewrite E eqxx in xy.
have [e1 [e2 [S1 A G [_ P]]]] := peak st yS.
have [d1 [d2 [p1 [p2 [sp1 sp2 Gz P2]]]]] := IH _ _ G sg.
have [u [q [sq Au PAu]]] := alltoall_slices A sp1.
have [q1 [sq1 _ _]] := seg_ocons (K := is_slice) (k := DynSlice) isT S1 sq.
have [q2 [sq2 _ P3]] := seg_ocons (K := is_alltoall) (k := AllToAll) isT Au sp2.
exists u, d2, q1, q2; split=> // M; rewrite [X in _ <= X]/oprice (negPf xy).
apply: leq_trans (P M); have := P2 M; have := PAu M; have := P3 M; lia.
Qed.

Lemma gather_alltoalls w n x y p z : size p <= n -> ostep w AllGather x y -> seg w is_alltoall y p z ->
  exists u p1 p2, [/\ seg w is_alltoall x p1 u, size p1 <= size p, seg w is_gather u p2 z &
    forall M, wcost M x p1 + wcost M u p2 <= oprice M AllGather x y + wcost M y p].
Proof.
elim: n x y p z => [|n IH] x y [|[k y1] p] z // le st; try (case=> /= <- _;
  have [q [sq _ qc]] := seg_one (K := is_gather) (k := AllGather) isT st;
  by exists x, [::], q; split=> // M; have := qc M; rewrite /wcost /=; lia).
case: (eqVneq x y) => [-> sg | xy].
  exists z, ((k, y1) :: p), [::]; split=> // M; first by rewrite /wcost /= /oprice eqxx; lia.
have {}le : size p <= n by [].
case/seg_inv; case: k => // yA _ sg; case: st => [E|st]; first by rewrite E eqxx in xy.
have [w1 [w2 [A G1 G2 [_ _ P _]]]] := rising st yA.
have [u [p1 [p2 [sp1 le1 sp2 P1]]]] := IH _ _ _ _ le G2 sg.
have [u' [p1' [p2' [sp1' le1' sp2' P1']]]] := IH _ _ _ _ (leq_trans le1 le) G1 sp1.
have [q [sq leq qc]] := seg_ocons (K := is_alltoall) (k := AllToAll) isT A sp1'.
exists u', q, (p2' ++ p2); split=> //; first by rewrite (leq_trans leq) // ltnS (leq_trans le1').
  exact: seg_cat sp2' sp2.
move=> M; rewrite (wcost_cat _ _ sp2'.1) [X in _ <= X + _]/oprice (negPf xy).
have -> : wcost M y ((AllToAll, y1) :: p) = price M AllToAll y y1 + wcost M y1 p by [].
have := P M; have := P1 M; have := P1' M; have := qc M; lia.
Qed.

(** Lemma 6.5, segment by segment. *)
Theorem normal_form_segments w p x y : wrun w x p y ->
  exists d1 d2 p1 p2 p3, [/\ seg w is_slice x p1 d1, seg w is_alltoall d1 p2 d2, seg w is_gather d2 p3 y &
    forall M, wcost M d1 p2 + wcost M d2 p3 <= wcost M x p].
Proof.
elim: p x => [|[k x1] p IH] x /=; first by move=> <-; exists x, x, [::], [::], [::].
move=> [st /IH {IH} [d1 [d2 [p1 [p2 [p3 [sp1 sp2 sp3 P]]]]]]].
case: k st => st; last 2 first.
- by case: (wstep_nopermute st).
- have [e1 [e2 [q1 [q2 [sq1 sq2 G P1]]]]] := gather_slices (or_intror st) sp1.
  have [u [q3 [q4 [sq3 _ sq4 P2]]]] := gather_alltoalls (leqnn _) G sp2.
  exists e1, u, q1, (q2 ++ q3), (q4 ++ p3); split=> //; try exact: seg_cat; first exact: seg_cat sq2 sq3.
    exact: seg_cat sq4 sp3.
  move=> M; rewrite (wcost_cat _ _ sq2.1) (wcost_cat _ _ sq4.1).
  have -> : wcost M x ((AllGather, x1) :: p) = price M AllGather x x1 + wcost M x1 p by [].
  have := P M; have := P1 M; have := P2 M; have := oprice_le M AllGather x x1; lia.
- by exists d1, d2, ((DynSlice, x1) :: p1), p2, p3; split=> //; apply: seg_cons.
have [u [q [sq A PA]]] := alltoall_slices (or_intror st) sp1.
have [q2 [sq2 _ P2]] := seg_ocons (K := is_alltoall) (k := AllToAll) isT A sp2.
exists u, d2, q, q2, p3; split=> // M.
have -> : wcost M x ((AllToAll, x1) :: p) = price M AllToAll x x1 + wcost M x1 p by [].
have := P M; have := PA M; have := P2 M; have := oprice_le M AllToAll x x1; lia.
Qed.

Lemma seg_slice_cost w M x p y : seg w is_slice x p y -> wcost M x p = 0.
Proof.
elim: p x => [|[k x1] p IH] x // /seg_inv [st kS /IH]; rewrite /wcost /= => ->.
by case: k kS {st}.
Qed.

Lemma seg_slice_vol w x p y : seg w is_slice x p y -> vol y <= vol x.
Proof.
elim: p x => [|[k x1] p IH] x; first by case=> /= ->.
by case/seg_inv; case: k => // /wstep_vol_slice le _ /IH le'; apply: leq_trans le' le.
Qed.

Lemma seg_alltoall_vol w x p y : seg w is_alltoall x p y -> vol y = vol x.
Proof.
elim: p x => [|[k x1] p IH] x; first by case=> /= ->.
by case/seg_inv; case: k => // /(wstep_vol_middle (k := AllToAll) isT) <- _ /IH.
Qed.

Lemma seg_gather_vol w x p y : seg w is_gather x p y -> vol x <= vol y.
Proof.
elim: p x => [|[k x1] p IH] x; first by case=> /= ->.
by case/seg_inv; case: k => // /wstep_vol_gather le _ /IH; apply: leq_trans.
Qed.

Lemma seg_normal w x d1 d2 y p1 p2 p3 : seg w is_slice x p1 d1 -> seg w is_alltoall d1 p2 d2 -> seg w is_gather d2 p3 y ->
  normal (kinds (p1 ++ p2 ++ p3)).
Proof.
move=> [_ a] [_ b] [_ c]; exists (kinds p1), (kinds p2), (kinds p3); rewrite !kinds_cat; split=> //.
by apply: sub_all b => k; rewrite /is_middle => ->.
Qed.

(** Lemma 6.5 (Theorem 4.8, weak): a normal form at no greater cost, in both cost models at once. *)
Theorem weak_normal_form w p x y : wrun w x p y ->
  exists q, [/\ wrun w x q y, normal (kinds q) & forall M, wcost M x q <= wcost M x p].
Proof.
move/normal_form_segments => [d1 [d2 [p1 [p2 [p3 [sp1 sp2 sp3 P]]]]]].
exists (p1 ++ p2 ++ p3); split; last 1 first.
- move=> M; rewrite (wcost_cat _ _ sp1.1) (wcost_cat _ _ sp2.1) (seg_slice_cost _ sp1); exact: P.
- exact: run_cat sp1.1 (run_cat sp2.1 sp3.1).
exact: seg_normal sp1 sp2 sp3.
Qed.

(** A weak normal form solves the memory-constrained problem. *)
Theorem weak_normal_height w p x y : wrun w x p y -> normal (kinds p) -> wheight x p <= maxn (vol x) (vol y).
Proof.
apply: normal_height => [u v|k u v kM|u v].
- exact: wstep_vol_slice.
- exact: wstep_vol_middle.
exact: wstep_vol_gather.
Qed.

(** The search may leave out every node above the bound: no cheaper path goes through one. *)
Theorem bounded_search_loses_nothing w B p x y : maxn (vol x) (vol y) <= B -> wrun w x p y ->
  exists q, [/\ wrun w x q y, wheight x q <= B & forall M, wcost M x q <= wcost M x p].
Proof.
move=> le /weak_normal_form [q [R nf P]]; exists q; split=> //.
exact: leq_trans (weak_normal_height R nf) le.
Qed.

(** Lemma 4.6, weak, as the paper has it: at most three steps (two when axes are single), in normal form, at no greater cost. *)
Theorem weak_peak w x y z : wstep w AllGather x y -> wstep w DynSlice y z ->
  exists p, [/\ wrun w x p z, size p <= 3, normal (kinds p), wheight x p <= maxn (vol x) (vol z) &
    forall M, wcost M x p <= wcost M x [:: (AllGather, y); (DynSlice, z)]].
Proof.
move=> G S; have [d1 [d2 [o1 o2 o3 [_ P]]]] := peak G S.
have [p1 [s1 l1 c1]] := seg_one (K := is_slice) (k := DynSlice) isT o1.
have [p2 [s2 l2 c2]] := seg_one (K := is_alltoall) (k := AllToAll) isT o2.
have [p3 [s3 l3 c3]] := seg_one (K := is_gather) (k := AllGather) isT o3.
have R : wrun w x (p1 ++ p2 ++ p3) z := run_cat s1.1 (run_cat s2.1 s3.1).
have nf := seg_normal s1 s2 s3.
exists (p1 ++ p2 ++ p3); split=> //; first by rewrite !size_cat; lia.
  exact: weak_normal_height R nf.
move=> M; rewrite (wcost_cat _ _ s1.1) (wcost_cat _ _ s2.1) (seg_slice_cost _ s1) add0n.
have -> : wcost M x [:: (AllGather, y); (DynSlice, z)] = price M AllGather x y by rewrite /wcost /= !addn0; case: M.
by have := P M; have := c2 M; have := c3 M; lia.
Qed.

(** Lemma 4.7, weak, rising edge: one all-to-all at most, then gathers; with single axes exactly one. *)
Theorem weak_rising w x y z : wstep w AllGather x y -> wstep w AllToAll y z ->
  exists u p q, [/\ seg w is_alltoall x p u, size p <= 1, seg w is_gather u q z &
    [/\ size q <= 2, w = Single -> size q <= 1 &
     forall M, wcost M x (p ++ q) <= wcost M x [:: (AllGather, y); (AllToAll, z)]]].
Proof.
move=> G A; have [w1 [w2 [o1 o2 o3 [sgl _ P _]]]] := rising G A.
have [p1 [s1 l1 c1]] := seg_one (K := is_alltoall) (k := AllToAll) isT o1.
have [p3 [s3 l3 c3]] := seg_one (K := is_gather) (k := AllGather) isT o3.
have [p2 [s2 l2 c2]] := seg_ocons (K := is_gather) (k := AllGather) isT o2 s3.
have C M : wcost M x [:: (AllGather, y); (AllToAll, z)] = price M AllGather x y + price M AllToAll y z.
  by rewrite /wcost /= addn0.
have T : exists q, [/\ seg w is_gather w1 q z, size q <= 2, w = Single -> size q <= 1 &
    forall M, wcost M w1 q <= oprice M AllGather w1 w2 + oprice M AllGather w2 z].
  case: (eqVneq w1 w2) => [E|ne].
    by exists p3; split; rewrite ?E //; [lia | move=> M; rewrite /oprice eqxx; apply: c3].
  case: (eqVneq w2 z) => [E|ne2].
    have [q [sq lq cq]] := seg_one (K := is_gather) (k := AllGather) isT o2.
    by exists q; rewrite -E; split=> //; [lia | move=> M; rewrite [oprice M _ w2 w2]/oprice eqxx addn0; apply: cq].
  exists p2; split=> //; [lia | | by move=> M; apply: leq_trans (c2 M) _; rewrite leq_add2l].
  by move/sgl => [] E; move: ne ne2; rewrite E eqxx.
have [q [sq l2q l1q cq]] := T.
exists w1, p1, q; split=> //; split=> // M; rewrite (wcost_cat _ _ s1.1) C.
by have := P M; have := c1 M; have := cq M; lia.
Qed.

(** Lemma 4.7, weak, falling edge. *)
Theorem weak_falling w x y z : wstep w AllToAll x y -> wstep w DynSlice y z ->
  exists u p q, [/\ seg w is_slice x p u, size p <= 2, seg w is_alltoall u q z &
    [/\ size q <= 1, w = Single -> size p <= 1 &
     forall M, wcost M x (p ++ q) <= wcost M x [:: (AllToAll, y); (DynSlice, z)]]].
Proof.
move=> A S; have [w2 [w1 [o1 o2 o3 [sgl P]]]] := falling A S.
have [p3 [s3 l3 c3]] := seg_one (K := is_alltoall) (k := AllToAll) isT o3.
have T : exists p, [/\ seg w is_slice x p w1, size p <= 2 & w = Single -> size p <= 1].
  have [p2 [s2 l2 _]] := seg_one (K := is_slice) (k := DynSlice) isT o2.
  have [p1 [s1 l1 _]] := seg_one (K := is_slice) (k := DynSlice) isT o1.
  case: (eqVneq x w2) => [E|ne]; first by exists p2; split; rewrite ?E //; lia.
  case: (eqVneq w2 w1) => [E|ne2]; first by exists p1; split; rewrite -?E //; lia.
  exists (p1 ++ p2); split; [exact: seg_cat s1 s2 | by rewrite size_cat; lia | ].
  by move/sgl => [] E; move: ne ne2; rewrite E eqxx.
have [p [sp l2 l1]] := T.
exists w1, p, p3; split=> //; split=> // M; rewrite (wcost_cat _ _ sp.1) (seg_slice_cost _ sp) add0n.
have -> : wcost M x [:: (AllToAll, y); (DynSlice, z)] = price M AllToAll x y by rewrite /wcost /= !addn0; case: M.
exact: leq_trans (c3 M) (P M).
Qed.

(** ** Any two nodes are connected: gather everything, then slice *)
Lemma wrun_rev w p x y : wrun w x p y -> exists q, wrun w y q x.
Proof.
elim: p x => [|[k z] p IH] x /=; first by move=> ->; exists [::].
move=> [st /IH [q R]]; exists (q ++ [:: (flip k, x)]).
by apply: run_cat R _; split=> //; apply: wstep_flip.
Qed.

Lemma climb w n c c' : (forall k, 0 < c' k) -> node c -> node c' -> (forall k, c k %| c' k) ->
  \sum_k (c' k - c k) <= n -> exists p, wrun w c p c'.
Proof.
move=> c'0; elim: n c => [|n IH] c nc nc' cd.
  rewrite leqn0 sum_nat_eq0 => /forallP H; exists [::]; apply/ffunP=> k.
  by have := H k; rewrite implyTb subn_eq0 => le; apply/eqP; rewrite eqn_leq le dvdn_leq.
move=> le; case: (pickP (fun k => c k != c' k)) => [i ne | eq]; last first.
  by exists [::]; apply/ffunP=> k; have /negbFE /eqP := eq k.
have /dvdnP [t Et] := cd i.
have t1 : 1 < t.
  by case: t Et => [|[|t]] // Et; [have := c'0 i; rewrite Et | rewrite Et mul1n eqxx in ne].
have pr := pdiv_prime t1; have /dvdnP [t' Et'] := pdiv_dvd t.
have cd' k : mul i (pdiv t) c k %| c' k.
  by rewrite ffunE; case: eqP => [->|//]; rewrite Et mulnC dvdn_mul // pdiv_dvd.
have nm : node (mul i (pdiv t) c) by apply: node_between nc nc' _ cd' => k; apply: mul_dvd.
have ci0 : 0 < c i by apply: dvdn_gt0 (c'0 i) (cd i).
have [|p R] := IH _ nm nc' cd'.
  rewrite (bigD1 i) //= ffunE eqxx; move: le; rewrite (bigD1 i) //=.
  rewrite [X in _ -> _ + X <= _](eq_bigr (fun k => c' k - c k)) => [|k /negPf ki]; last by rewrite ffunE ki.
  have := dvdn_leq (c'0 i) (cd' i); rewrite ffunE eqxx; have := prime_gt1 pr.
  move: (pdiv t) (\sum_(_ < _ | _) _) => q x q1; have : c i * 2 <= c i * q by rewrite leq_mul2l q1 orbT.
  by lia.
exists ((AllGather, mul i (pdiv t) c) :: p); split=> //; split=> //; exists i, (pdiv t); split=> //.
by case: w {IH R} => //=; apply: prime_gt1.
Qed.

Theorem weak_connected w c c' : (forall i, 0 < s i) -> node c -> node c' -> exists p, wrun w c p c'.
Proof.
move=> s0 nc nc'; have ns : node s by apply/andP; split; [apply/forallP | rewrite dvdn_mull].
have [p R] := climb w s0 nc ns (fun k => forallP (proj1 (andP nc)) k) (leqnn _).
have [q R'] := climb w s0 nc' ns (fun k => forallP (proj1 (andP nc')) k) (leqnn _).
have [q' R''] := wrun_rev R'; exists (p ++ q'); exact: run_cat R R''.
Qed.
End Weak.
