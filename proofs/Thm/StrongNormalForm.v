(** Lemmas 4.6 and 4.7 and Theorem 4.8 for typed sequences: lift to weak, normalise, lower the slices forwards from
    the source and the gathers backwards from the target, one permutation between. *)
From mathcomp Require Import all_ssreflect all_fingroup zify.
From Redistrib Require Import Spec.Sequences Spec.Weak Spec.Types Spec.Collectives Spec.LowLevel.
From Redistrib Require Import Thm.Arith Thm.WeakDiamonds Thm.WeakNormalForm Thm.TypeMeaning Thm.Typing.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Lemma permuteP (k : kind) : {k = AllPermute} + {k <> AllPermute}.
Proof. by case: k; [right | right | left | right]. Qed.

Section Strong.
Variables (n : nat) (sz : 'I_n -> nat) (r : nat).
Hypothesis sz_prime : forall a, prime (sz a).
Local Notation ty := (ty n r).
Local Notation wf := (@wf n sz r).
Local Notation typed := (@typed n sz r).
Local Notation trun := (@trun n sz r).
Local Notation N := (ndev sz).
Implicit Types (v u : ty) (p q : trace ty) (i j : 'I_r) (xs ys : seq 'I_n).

(** ** Reading rules backwards *)
Lemma upd_upd (A : Type) (f : {ffun 'I_r -> A}) i x y : upd (upd f i x) i y = upd f i y.
Proof. by apply/ffunP=> k; rewrite !ffunE; case: eqP. Qed.

Lemma upd_id (A : Type) (f : {ffun 'I_r -> A}) i : upd f i (f i) = f.
Proof. by apply/ffunP=> k; rewrite !ffunE; case: eqP => [->|]. Qed.

Lemma slice_rev i xs v v' : slice_rule sz i xs v v' -> gather_rule sz i xs v' v.
Proof.
case=> c [ux fx L ->]; exists (axs v i); split; first by rewrite /= upd_same.
by rewrite /= upd_upd upd_id -L; case: v {fx L}.
Qed.

Lemma gather_rev i xs v v' : wf v -> gather_rule sz i xs v v' -> slice_rule sz i xs v' v.
Proof.
move=> w R; have w' := gather_wf w R; case: R => ys [E Ev'].
have ux := wf_uniq i w; move: ux; rewrite E cat_uniq => /and3P [ux nx _].
exists (loc v); split; rewrite ?Ev' //=; last first.
  by rewrite upd_same upd_upd -E upd_id; case: v {w E Ev' w'}.
apply/allP=> a ax; apply/freeP=> k /=; rewrite ffunE; case: (eqVneq k i) => [_|ki].
  by apply: contraL ax => ay; apply: (hasPn nx).
apply/negP => ak; move: ki; rewrite (wf_disjoint w (i := k) (j := i) ak) ?eqxx //.
by rewrite E mem_cat ax.
Qed.

Lemma alltoall_rev i j xs v v' : alltoall_rule sz i j xs v v' -> alltoall_rule sz j i xs v' v.
Proof.
case=> ys [c [ij E L ->]]; exists (axs v j), c; split; rewrite 1?eq_sym //=; first by rewrite upd_same.
case: v E L => c0 f g /= E ->; congr Ty; apply/ffunP=> k; rewrite !ffunE.
case: (eqVneq k i) => [->|ki]; first by rewrite (negPf ij) E eqxx.
by case: eqP => [->|].
Qed.

Lemma typed_rev w k v v' : wf v -> typed w k v v' -> typed w (flip k) v' v.
Proof.
move=> wv; case: k => /=.
- by move=> [i [xs [okx /slice_rev R]]]; exists i, xs.
- by move=> [i [j [xs [okx /alltoall_rev R]]]]; exists j, i, xs.
- by move=> [w1 w2 L G]; split.
by move=> [i [xs [okx /(gather_rev wv) R]]]; exists i, xs.
Qed.

Lemma trun_wf w p v v' : wf v -> trun w v p v' -> wf v' /\ glob v' = glob v.
Proof.
elim: p v => [|[k x] p IH] v wv /=; first by move=> <-.
by move=> [/(preservation wv) [wx <-] /(IH _ wx)].
Qed.

Lemma trun_rev w p v v' : wf v -> trun w v p v' ->
  exists q, trun w v' q v /\ kinds q = rev (map flip (kinds p)).
Proof.
elim: p v => [|[k x] p IH] v wv /=; first by move=> ->; exists [::].
move=> [t R]; have [wx _] := preservation wv t; have [q [Rq Kq]] := IH _ wx R.
exists (q ++ [:: (flip k, v)]); split; last by rewrite kinds_cat Kq rev_cons -cats1.
by apply: run_cat Rq _; split=> //; apply: typed_rev.
Qed.

(** ** Lifting *)
Lemma lift_typed w p v v' : wf v -> trun w v p v' ->
  exists q : trace (shape r), wrun (glob v) N w (loc v) q (loc v').
Proof.
elim: p v => [|[k x] p IH] v wv /=; first by move=> ->; exists [::].
move=> [t R]; have [wx gx] := preservation wv t; have [q Rq] := IH _ wx R; rewrite gx in Rq.
case: (permuteP k) t => [-> [_ _ -> _]|kp t]; first by exists q.
by exists ((k, loc x) :: q); split=> //; apply: typed_wstep t.
Qed.

(** ** Lowering segments *)
Lemma lower_slices w (p : trace (shape r)) v c' : wf v -> seg (glob v) N w is_slice (loc v) p c' ->
  exists q v', [/\ trun w v q v', kinds q = kinds p, loc v' = c' & wf v' /\ glob v' = glob v].
Proof.
elim: p v => [|[k x] p IH] v wv; first by case=> /= <- _; exists [::], v.
case/seg_inv; case: k => // st _ sg; have [u [t Lu]] := lower_slice sz_prime wv st.
have [wu gu] := preservation wv t; rewrite -Lu -gu in sg.
have [q [v' [R K L [w' g']]]] := IH _ wu sg.
by exists ((DynSlice, u) :: q), v'; split; rewrite /= ?K //; split=> //; rewrite g' gu.
Qed.

(** Gathers, backwards from the target: each is a slice reversed. *)
Lemma raise_gathers w (p : trace (shape r)) c v' : wf v' -> seg (glob v') N w is_gather c p (loc v') ->
  exists q v, [/\ trun w v q v', kinds q = kinds p, loc v = c & wf v /\ glob v = glob v'].
Proof.
move=> wv'; elim: p c => [|[k x] p IH] c; first by case=> /= -> _; exists [::], v'.
case/seg_inv; case: k => // st _ sg; have [q [u [R K Lu [wu gu]]]] := IH _ sg.
rewrite -Lu -gu in st; have [v [t L]] := lower_slice sz_prime wu (wstep_flip st).
have [wv gv] := preservation wu t.
exists ((AllGather, u) :: q), v; split; rewrite /= ?K //; last by rewrite gv.
by split=> //; apply: (typed_rev wu t).
Qed.

(** One all-to-all: a permutation brings the axes to the front. *)
Lemma lower_alltoall_typed w v c' : wf v -> wstep (glob v) N w AllToAll (loc v) c' ->
  exists u v', [/\ typed w AllPermute v u, typed w AllToAll u v', loc v' = c' & wf v' /\ glob v' = glob v].
Proof.
move=> wv st; have [u [v' [wu gu Lu t L]]] := lower_some sz_prime wv st.
have [w' g'] := preservation wu t; exists u, v'; split=> //; last by rewrite g'.
Qed.

Lemma lower_alltoalls w (p : trace (shape r)) v c' : wf v -> seg (glob v) N w is_alltoall (loc v) p c' ->
  exists q v', [/\ trun w v q v', all is_middle (kinds q), loc v' = c' & wf v' /\ glob v' = glob v].
Proof.
elim: p v => [|[k x] p IH] v wv; first by case=> /= <- _; exists [::], v.
case/seg_inv; case: k => // st _ sg; have [u [y [t1 t2 Ly [wy gy]]]] := lower_alltoall_typed wv st.
rewrite -Ly -gy in sg; have [q [v' [R K L [w' g']]]] := IH _ wy sg.
by exists ((AllPermute, u) :: (AllToAll, y) :: q), v'; split=> //; rewrite g'.
Qed.

(** The height of a typed sequence in normal form. *)
Theorem typed_normal_height w p v v' : wf v -> trun w v p v' -> normal (kinds p) ->
  theight v p <= maxn (tsize v) (tsize v').
Proof.
move=> wv R; pose step k x y := wf x /\ typed w k x y.
have R' : run step v p v'.
  elim: p v wv R => [|[k x] p IH] v wv //= [t R].
  by split; [split | apply: IH R; case: (preservation wv t)].
apply: (normal_height (step := step)) R' => [x y [wx t]|k x y kM [wx t]|x y [wx t]]; rewrite /tsize.
- exact: wstep_vol_slice (typed_wstep sz_prime wx (k := DynSlice) _ t).
- case: k kM t => // _ t; last by case: t => _ _ ->.
  exact: (wstep_vol_middle (k := AllToAll) _ (typed_wstep sz_prime wx _ t)).
exact: wstep_vol_gather (typed_wstep sz_prime wx _ t).
Qed.

(** A weak sequence between the local shapes of two types gives a typed one in normal form between the types. *)
Theorem typed_from_weak w (p : trace (shape r)) v v' : wf v -> wf v' -> glob v' = glob v ->
  wrun (glob v) N w (loc v) p (loc v') ->
  exists q, [/\ trun w v q v', normal (kinds q) & theight v q <= maxn (tsize v) (tsize v')].
Proof.
move=> wv w' g' /normal_form_segments [d1 [d2 [p1 [p2 [p3 [s1 s2 s3 _]]]]]].
have [q1 [u1 [R1 K1 L1 [wu1 g1]]]] := lower_slices wv s1.
rewrite -L1 -g1 in s2; have [q2 [u2 [R2 K2 L2 [wu2 g2]]]] := lower_alltoalls wu1 s2.
rewrite -g' in s3; have [q3 [u3 [R3 K3 L3 [wu3 g3]]]] := raise_gathers w' s3.
have P : typed w AllPermute u2 u3 by split=> //; rewrite ?L2 ?L3 // g2 g1 g3 g'.
have Rq : trun w v (q1 ++ q2 ++ (AllPermute, u3) :: q3) v'.
  by apply: run_cat R1 (run_cat R2 _).
have nf : normal (kinds (q1 ++ q2 ++ (AllPermute, u3) :: q3)).
  exists (kinds q1), (kinds q2 ++ [:: AllPermute]), (kinds q3); rewrite !kinds_cat -catA; split=> //.
  - by rewrite K1; case: s1.
  - by rewrite all_cat K2.
  by rewrite K3; case: s3.
by exists (q1 ++ q2 ++ (AllPermute, u3) :: q3); split=> //; apply: typed_normal_height Rq nf.
Qed.


(** Theorem 4.8, with the height bound that is its point. *)
Theorem normal_form_theorem w p v v' : wf v -> trun w v p v' ->
  exists q, [/\ trun w v q v', normal (kinds q) & theight v q <= maxn (tsize v) (tsize v')].
Proof.
move=> wv R; have [w' g'] := trun_wf wv R; have [q Rq] := lift_typed wv R; exact: typed_from_weak Rq.
Qed.

(** The memory-constrained problem (4) has a solution, in normal form, between any two types of one global shape. *)
Theorem memory_constrained_solvable w v v' : wf v -> wf v' -> glob v' = glob v ->
  exists q, [/\ trun w v q v', normal (kinds q) & theight v q <= maxn (tsize v) (tsize v')].
Proof.
move=> wv wv' G; have n1 := wf_node wv; have n2 := wf_node wv'; rewrite G in n2.
have [q R] := weak_connected w (fun i => wf_glob i wv) n1 n2; exact: typed_from_weak R.
Qed.
End Strong.
