(** The two diamonds behind the peak lemma and the edges lemma, for single- and multi-axis collectives at once. *)
From mathcomp Require Import all_ssreflect zify.
From Redistrib Require Import Spec.Sequences Spec.Weak Thm.Arith.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

(** Prices of a gather by [m] of a tile of [v] elements, and of an all-to-all by [m] of a tile of [m * v]. *)
Definition wt M m := if M is Paper then m else m.-1.
Definition pr M m v := wt M m * v.
Definition opr M m v := (if m == 1 then 0 else wt M m) * v.

Lemma wt_mono M m n : m <= n -> wt M m <= wt M n.
Proof. by case: M => /=; lia. Qed.

(** The inequalities behind the diamonds, [v] being the volume of the common origin. *)
Lemma num_peak_eq M m g n v : 0 < g -> 0 < n -> pr M m v <= pr M (m * g) (n * v).
Proof. by move=> g0 n0; rewrite leq_mul ?leq_pmull // wt_mono // leq_pmulr. Qed.

Lemma num_peak_neq M m g n v : 0 < g -> 0 < n -> 0 < m ->
  opr M g v + opr M m (g * v) <= pr M (m * g) (n * g * v).
Proof.
move=> g0 n0 m0; rewrite /opr /pr !mulnA -mulnDl leq_mul2r; apply/orP; right.
apply: (@leq_trans (wt M (m * g) * g)); last by rewrite leq_mul2r; apply/orP; right; nia.
by case: M => /=; case: eqP => g1; case: eqP => m1; rewrite ?g1 ?m1; nia.
Qed.

Lemma num_edge_neq M m n v : 0 < m -> opr M n v + opr M m (n * v) <= pr M m (n * v) + pr M n (m * v).
Proof.
move=> m0; rewrite addnC; apply: leq_add; first by apply: leq_mul => //; case: ifP.
by apply: leq_mul; [case: ifP | rewrite leq_pmull].
Qed.

Lemma num_edge_eq M m g n v : 0 < g -> 0 < n -> 0 < m ->
  opr M n v + opr M m (n * v) + opr M g (m * (n * v)) <= pr M (m * g) (n * v) + pr M (n * g) (m * v).
Proof.
move=> g0 n0 m0; rewrite /opr /pr !mulnA -!mulnDl leq_mul2r; apply/orP; right.
have mn : n <= m * n by rewrite leq_pmull.
have mn' : m <= m * n by rewrite leq_pmulr.
have mn1 : m + n <= m * n + 1 by nia.
case: M => /=; last first.
  have -> : (m * g).-1 * n = m * n * g - n by nia.
  have -> : (n * g).-1 * m = m * n * g - m by nia.
  have mng : m * n <= m * n * g by rewrite leq_pmulr.
  have E : n.-1 + m.-1 * n = m * n - 1 by nia.
  have E' : g.-1 * m * n = m * n * g - m * n by nia.
  apply: (@leq_trans (n.-1 + m.-1 * n + g.-1 * m * n)); last by rewrite E E'; lia.
  apply: leq_add; first apply: leq_add.
  - by case: ifP.
  - by apply: leq_mul => //; case: ifP.
  - by rewrite -!mulnA; apply: leq_mul => //; case: ifP.
have -> : m * g * n + n * g * m = m * n * g + m * n * g by nia.
have -> : (if g == 1 then 0 else g) * m * n = (if g == 1 then 0 else m * n * g) by case: eqP; nia.
have -> : (if m == 1 then 0 else m) * n = (if m == 1 then 0 else m * n) by case: eqP; nia.
set P := m * n in mn mn' mn1 *; case: (eqVneq g 1) => [->|g1].
  by rewrite muln1; case: eqP; case: eqP; lia.
have : P * 2 <= P * g by rewrite leq_mul2l; lia.
by case: eqP; case: eqP; lia.
Qed.

Section Diamonds.
Variables (r : nat) (s : shape r) (N : nat).
Implicit Types (c d e x y z : shape r) (i j k : 'I_r).
Local Notation node := (node s N).
Local Notation wstep := (wstep s N).

Lemma price_gather M i m c : price M AllGather c (mul i m c) = pr M m (vol c).
Proof. by case: M; rewrite /= vol_mul // /pr /= -subn1 mulnBl mul1n. Qed.

Lemma price_alltoall M i j m d : i != j -> 0 < m -> price M AllToAll (mul j m d) (mul i m d) = pr M m (vol d).
Proof.
move=> ij m0; have -> : price M AllToAll (mul j m d) (mul i m d) =
  if M is Paper then vol (mul j m d) else vol (mul j m d) - vol (meet (mul j m d) (mul i m d)) by [].
rewrite vol_mul; case: M => //=; rewrite /pr /= -subn1 mulnBl mul1n; congr (_ - vol _); apply/ffunP=> k; rewrite !ffunE.
case: (eqVneq k j) => [->|_]; first by rewrite eq_sym (negPf ij); apply/minn_idPr; rewrite leq_pmulr.
by case: eqP => _; apply/minn_idPl; rewrite // leq_pmulr.
Qed.

(** A step that may be idle, and its price. *)
Definition ostep w (k : kind) x y := x = y \/ wstep w k x y.
Definition oprice M (k : kind) x y := if x == y then 0 else @price r M k x y.

Lemma oprice_le M (k : kind) x y : oprice M k x y <= price M k x y.
Proof. by rewrite /oprice; case: eqP. Qed.

Lemma opr_le M m v : opr M m v <= pr M m v.
Proof. by rewrite leq_mul //; case: eqP. Qed.

Lemma oprice_gather M i m c : oprice M AllGather c (mul i m c) <= opr M m (vol c).
Proof.
rewrite /opr; case: eqP => [->|_]; first by rewrite mul1 /oprice eqxx.
by apply: leq_trans (oprice_le _ _ _ _) _; rewrite price_gather.
Qed.

Lemma oprice_alltoall M i j m d : i != j -> 0 < m ->
  oprice M AllToAll (mul j m d) (mul i m d) <= opr M m (vol d).
Proof.
move=> ij m0; rewrite /opr; case: eqP => [->|_]; first by rewrite !mul1 /oprice eqxx.
by apply: leq_trans (oprice_le _ _ _ _) _; rewrite price_alltoall.
Qed.

Lemma ostep_gather w i m c : m = 1 \/ factor w m -> node c -> node (mul i m c) -> ostep w AllGather c (mul i m c).
Proof. by case=> [->|mF] cN mN; [left; rewrite mul1 | right; split=> //; exists i, m]. Qed.

Lemma ostep_slice w i m c : m = 1 \/ factor w m -> node c -> node (mul i m c) -> ostep w DynSlice (mul i m c) c.
Proof. by case=> [->|mF] cN mN; [left; rewrite mul1 | right; split=> //; exists i, m]. Qed.

Lemma ostep_alltoall w i j m d : i != j -> m = 1 \/ factor w m -> node (mul j m d) -> node (mul i m d) ->
  ostep w AllToAll (mul j m d) (mul i m d).
Proof. by move=> ij [->|mF] cN mN; [left; rewrite !mul1 | right; split=> //; exists i, j, m, d]. Qed.

(** Which shapes are nodes again. *)
Lemma node_between c d y : node c -> node y -> (forall k, c k %| d k) -> (forall k, d k %| y k) -> node d.
Proof.
move=> /andP [_ cN] /andP [/forallP ys _] cd dy; apply/andP; split.
  by apply/forallP=> k; apply: dvdn_trans (dy k) (ys k).
by apply: dvdn_trans cN _; rewrite dvdn_mul // vol_dvd.
Qed.

Lemma node_same_vol c d y : node c -> node y -> vol d = vol c -> (forall k, d k %| y k) -> node d.
Proof.
move=> /andP [_ cN] /andP [/forallP ys _] cd dy; rewrite /Weak.node cd cN andbT.
by apply/forallP=> k; apply: dvdn_trans (dy k) (ys k).
Qed.

Lemma node_coprime c y d a b : node c -> node y -> coprime a b -> vol c = a * vol d -> vol y = b * vol d ->
  (forall k, d k %| c k) -> node d.
Proof.
move=> /andP [/forallP cs cN] /andP [_ yN] ab ca yb dc; apply/andP; split.
  by apply/forallP=> k; apply: dvdn_trans (dc k) (cs k).
have : vol s %| gcdn (N * vol c) (N * vol y) by rewrite dvdn_gcd cN.
by rewrite ca yb -muln_gcdr -muln_gcdl; move: ab; rewrite /coprime => /eqP ->; rewrite mul1n.
Qed.

(** Lemma 4.6, weak: a peak becomes slice? alltoall? gather?, at no greater price. *)
Lemma peak w x y z : wstep w AllGather x y -> wstep w DynSlice y z ->
  exists d1 d2, [/\ ostep w DynSlice x d1, ostep w AllToAll d1 d2, ostep w AllGather d2 z &
    (w = Single -> d1 = d2 \/ x = d1 /\ d2 = z) /\
    forall M, oprice M AllToAll d1 d2 + oprice M AllGather d2 z <= price M AllGather x y].
Proof.
move=> [xN _ [i [m [mF ->]]]] [_ zN [j [n [nF E]]]].
have [g [m' [n' [Em En co [g0 m0 n0]]]]] := gcd_split (factor_gt0 mF) (factor_gt0 nF).
have m'F : m' = 1 \/ factor w m' by apply: factor_dvd mF _; rewrite Em dvdn_mulr.
have n'F : n' = 1 \/ factor w n' by apply: factor_dvd nF _; rewrite En dvdn_mulr.
have gF : g = 1 \/ factor w g by apply: factor_dvd mF _; rewrite Em dvdn_mull.
have g1 := factor_gt1 mF.
case: (eqVneq i j) E => [<-|ij] E.
  have {}E : mul i m' x = mul i n' z.
    by apply: (@mul_inj _ i g) => //; rewrite !mulA -Em -En.
  have [e [Ex Ez]] := split_eq co n0 E.
  have eN : node e.
    apply: (node_coprime xN zN (a := n') (b := m')); rewrite ?Ex ?Ez ?vol_mul 1?coprime_sym //.
    by move=> k; apply: mul_dvd.
  exists e, e; split; rewrite ?Ex ?Ez.
  - by apply: ostep_slice; rewrite -?Ex.
  - by left.
  - by apply: ostep_gather; rewrite -?Ez.
  split=> [_|M]; first by left.
  rewrite price_gather {1}/oprice eqxx add0n.
  apply: leq_trans (oprice_gather _ _ _ _) _; apply: leq_trans (opr_le _ _ _) _.
  by rewrite vol_mul Em num_peak_eq.
have [e [Ex Ez]] := split_neq ij E.
have Ex' : x = mul j n' (mul j g e) by rewrite mulA mulnC -En.
have Ez' : z = mul i m' (mul i g e) by rewrite mulA mulnC -Em.
have d1N : node (mul j g e).
  apply: (node_coprime xN zN (a := n') (b := m')); rewrite ?Ex' ?Ez' ?vol_mul 1?coprime_sym //.
  by move=> k; apply: mul_dvd.
have d2N : node (mul i g e).
  by apply: node_same_vol d1N zN _ _; rewrite ?vol_mul // Ez' => k; apply: mul_dvd.
exists (mul j g e), (mul i g e); split.
- by rewrite Ex'; apply: ostep_slice; rewrite -?Ex'.
- exact: ostep_alltoall.
- by rewrite Ez'; apply: ostep_gather; rewrite -?Ez'.
split=> [w1|M].
  move: mF nF; rewrite w1 /= Em En => /prime_mul_eq1 [m1|g1'] /prime_mul_eq1 [n1|g1'']; try by left; rewrite ?g1' ?g1'' !mul1.
  by right; rewrite Ex' Ez' m1 n1 !mul1.
rewrite price_gather; apply: leq_trans (leq_add (oprice_alltoall _ _ ij g0) _) _.
  by rewrite Ez'; apply: oprice_gather.
by rewrite Ex !vol_mul Em En num_peak_neq.
Qed.

(** Lemma 4.7, weak, rising edge: the all-to-all moves below the gather, at no greater price. *)
Lemma rising w x y z : wstep w AllGather x y -> wstep w AllToAll y z ->
  exists w1 w2, [/\ ostep w AllToAll x w1, ostep w AllGather w1 w2, ostep w AllGather w2 z &
    [/\ w = Single -> w1 = w2 \/ w2 = z,
       vol z = vol y,
       forall M, oprice M AllToAll x w1 + oprice M AllGather w1 w2 + oprice M AllGather w2 z
                   <= price M AllGather x y + price M AllToAll y z
     & forall M, oprice M AllToAll x w1 <= price M AllToAll y z]].
Proof.
move=> [xN _ [i [m [mF ->]]]] [_ zN [k [j [n [d [kj nF E Ez]]]]]].
have m0 := factor_gt0 mF; have n0' := factor_gt0 nF.
have vz : vol z = vol (mul i m x) by rewrite E Ez !vol_mul.
case: (eqVneq i j) E => [Eij|ij] E; last first.
  have [e [Ex Ed]] := split_neq ij E.
  have Ez' : z = mul i m (mul k n e) by rewrite mulC -Ed.
  have w1N : node (mul k n e).
    by apply: node_same_vol xN zN _ _; rewrite ?Ex ?vol_mul // Ez' => l; apply: mul_dvd.
  have PA M : oprice M AllToAll x (mul k n e) <= opr M n (vol e) by rewrite Ex; apply: oprice_alltoall.
  exists (mul k n e), z; split=> //; last split=> //.
  - by rewrite Ex; apply: ostep_alltoall; rewrite -?Ex; auto.
  - by rewrite Ez'; apply: ostep_gather; rewrite -?Ez'; auto.
  - by left.
  - by right.
  - move=> M; rewrite price_gather E Ez price_alltoall // Ex Ed !vol_mul {3}/oprice eqxx addn0.
    apply: leq_trans _ (num_edge_neq _ _ _ m0); apply: leq_add; first by rewrite -Ex.
    by rewrite -Ed -Ez Ez'; apply: leq_trans (oprice_gather _ _ _ _) _; rewrite vol_mul.
  move=> M; rewrite E Ez price_alltoall // Ed vol_mul; apply: leq_trans (PA M) _.
  by apply: leq_mul; [case: ifP | rewrite leq_pmull].
rewrite -{}Eij {j} in kj E *.
have [g [m' [n' [Em En co [g0 m'0 n'0]]]]] := gcd_split m0 n0'.
have m'F : m' = 1 \/ factor w m' by apply: factor_dvd mF _; rewrite Em dvdn_mulr.
have n'F : n' = 1 \/ factor w n' by apply: factor_dvd nF _; rewrite En dvdn_mulr.
have gF : g = 1 \/ factor w g by apply: factor_dvd mF _; rewrite Em dvdn_mull.
have E1 : mul i m' x = mul i n' d by apply: (@mul_inj _ i g) => //; rewrite !mulA -Em -En.
have [e [Ex Ed]] := split_eq co n'0 E1.
have Ez' : z = mul k g (mul i m' (mul k n' e)) by rewrite [mul i m' _]mulC mulA -En -Ed.
have w1N : node (mul k n' e).
  apply: node_same_vol xN zN _ _; rewrite ?Ex ?vol_mul // Ez' => l.
  by apply: dvdn_trans (mul_dvd _ _ _ _) (mul_dvd _ _ _ _).
have w2N : node (mul i m' (mul k n' e)).
  by apply: node_between w1N zN _ _ => l; rewrite ?Ez' mul_dvd.
have PA M : oprice M AllToAll x (mul k n' e) <= opr M n' (vol e) by rewrite Ex; apply: oprice_alltoall.
exists (mul k n' e), (mul i m' (mul k n' e)); split=> //; last split=> //.
- by rewrite Ex; apply: ostep_alltoall; rewrite -?Ex; auto.
- by apply: ostep_gather.
- by rewrite Ez'; apply: ostep_gather; rewrite -?Ez'.
- move=> w1; move: mF; rewrite w1 /= Em => /prime_mul_eq1 [m'1 | g1]; [left | right].
    by rewrite m'1 mul1.
  by rewrite Ez' g1 mul1.
- move=> M; rewrite price_gather E Ez price_alltoall // Ex Ed !vol_mul Em En.
  apply: leq_trans _ (num_edge_eq _ _ g0 n'0 m'0); rewrite -addnA -addnA leq_add -?Ex // leq_add //.
    by apply: leq_trans (oprice_gather _ _ _ _) _; rewrite vol_mul.
  by rewrite -Ed -En -Ez Ez'; apply: leq_trans (oprice_gather _ _ _ _) _; rewrite !vol_mul.
move=> M; rewrite E Ez price_alltoall // Ed vol_mul En; apply: leq_trans (PA M) _.
apply: leq_mul; last by rewrite leq_pmull.
by case: ifP => // _; rewrite wt_mono // leq_pmulr.
Qed.
End Diamonds.
