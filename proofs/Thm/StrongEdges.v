(** Lemmas 4.6 and 4.7 for typed collectives, with the numbers of steps the paper gives. *)
From mathcomp Require Import all_ssreflect all_fingroup zify.
From Redistrib Require Import Spec.Sequences Spec.Weak Spec.Types Spec.Collectives.
From Redistrib Require Import Thm.Arith Thm.WeakDiamonds Thm.WeakNormalForm Thm.TypeMeaning Thm.Typing Thm.StrongNormalForm.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Section Edges.
Variables (n : nat) (sz : 'I_n -> nat) (r : nat).
Hypothesis sz_prime : forall a, prime (sz a).
Local Notation ty := (ty n r).
Local Notation wf := (@wf n sz r).
Local Notation typed := (@typed n sz r).
Local Notation trun := (@trun n sz r).
Local Notation N := (ndev sz).
Implicit Types (v u : ty) (p q : trace ty) (i j : 'I_r) (xs ys : seq 'I_n) (c : shape r).

Lemma opt_slice w v c : wf v -> ostep (glob v) N w DynSlice (loc v) c ->
  exists q u, [/\ trun w v q u, size q <= (loc v != c), all is_slice (kinds q), loc u = c & wf u /\ glob u = glob v].
Proof.
move=> wv [<-|st]; first by exists [::], v.
case: (eqVneq (loc v) c) => [<-|ne]; first by exists [::], v.
have [u [t L]] := lower_slice sz_prime wv st; have [wu gu] := preservation wv t.
by exists [:: (DynSlice, u)], u.
Qed.

Lemma opt_alltoall w v c : wf v -> ostep (glob v) N w AllToAll (loc v) c ->
  exists q u, [/\ trun w v q u, size q <= (loc v != c).*2, all is_middle (kinds q), loc u = c & wf u /\ glob u = glob v].
Proof.
move=> wv [<-|st]; first by exists [::], v.
case: (eqVneq (loc v) c) => [<-|ne]; first by exists [::], v.
have [y [u [t1 t2 L wu]]] := lower_alltoall_typed sz_prime wv st.
by exists [:: (AllPermute, y); (AllToAll, u)], u.
Qed.

Lemma opt_gather w v c : wf v -> ostep (glob v) N w AllGather c (loc v) ->
  exists q u, [/\ trun w u q v, size q <= (c != loc v), all is_gather (kinds q), loc u = c & wf u /\ glob u = glob v].
Proof.
move=> wv [->|st]; first by exists [::], v.
case: (eqVneq c (loc v)) => [->|ne]; first by exists [::], v.
have [u [t L]] := lower_slice sz_prime wv (wstep_flip st); have [wu gu] := preservation wv t.
by exists [:: (AllGather, v)], u; split=> //; split=> //; apply: (typed_rev wv t).
Qed.

(** Lemma 4.6: three steps at most (five when collectives act on several axes), in normal form. *)
Theorem peak_lemma w v0 v1 v2 : wf v0 -> typed w AllGather v0 v1 -> typed w DynSlice v1 v2 ->
  exists p, [/\ trun w v0 p v2, size p <= (if w is Single then 3 else 5), normal (kinds p) &
                theight v0 p <= maxn (tsize v0) (tsize v2)].
Proof.
move=> w0 G S; have [w1 g1] := preservation w0 G; have [w2 g2] := preservation w1 S.
have G' := typed_wstep sz_prime w0 (k := AllGather) _ G.
have S' := typed_wstep sz_prime w1 (k := DynSlice) _ S; rewrite g1 in S'.
have [//|//|d1 [d2 [o1 o2 o3 [sgl _]]]] := peak (G' _) (S' _).
have [q1 [u1 [R1 z1 K1 L1 [wu1 gu1]]]] := opt_slice w0 o1.
rewrite -gu1 -L1 in o2; have [q2 [u2 [R2 z2 K2 L2 [wu2 gu2]]]] := opt_alltoall wu1 o2.
rewrite -g1 -g2 in o3; have [q3 [u3 [R3 z3 K3 L3 [wu3 gu3]]]] := opt_gather w2 o3.
have P : typed w AllPermute u2 u3 by split=> //; rewrite ?L2 ?L3 // gu2 gu1 gu3 g2 g1.
have R : trun w v0 (q1 ++ q2 ++ (AllPermute, u3) :: q3) v2 by apply: run_cat R1 (run_cat R2 _).
have nf : normal (kinds (q1 ++ q2 ++ (AllPermute, u3) :: q3)).
  exists (kinds q1), (kinds q2 ++ [:: AllPermute]), (kinds q3); rewrite !kinds_cat -catA; split=> //.
  by rewrite all_cat K2.
exists (q1 ++ q2 ++ (AllPermute, u3) :: q3); split=> //; last exact: typed_normal_height R nf.
rewrite !size_cat /= L1 in z2 *; move: z1 z2 z3 sgl; clear.
case: w => [z1 z2 z3 /(_ erefl) [E|[E1 E2]] | z1 z2 z3 _].
- by move: z2; rewrite E eqxx leqn0 => /eqP ->; case: eqP z1 z3 => _; case: eqP => _; lia.
- by move: z1 z3; rewrite E1 E2 !eqxx !leqn0 => /eqP -> /eqP ->; case: eqP z2 => _; lia.
by case: eqP z1 => _; case: eqP z2 => _; case: eqP z3 => _; lia.
Qed.

(** A gather into [v2] from some type of the local shape [c]. *)
Lemma gather_into w v2 c : wf v2 -> wstep (glob v2) N w AllGather c (loc v2) ->
  exists u, [/\ typed w AllGather u v2, loc u = c, wf u & glob u = glob v2].
Proof.
move=> wv st; have [u [t L]] := lower_slice sz_prime wv (wstep_flip st); have [wu gu] := preservation wv t.
by exists u; split=> //; apply: (typed_rev wv t).
Qed.

Lemma reorder_wf i l v : wf v -> perm_eq (axs v i) l -> wf (Ty (loc v) (upd (axs v) i l) (glob v)).
Proof.
move=> w P; apply: wfI => /= [k|k|a]; first exact: wf_glob w.
  by rewrite -(wf_cut k w) ffunE; case: eqP => [->|//]; rewrite (span_perm _ P).
apply: leq_trans (wf_affine a w); case: v P {w} => c f g /= P.
by apply: occ_le; have /seq.permP -> := P.
Qed.

(** Lemma 4.7, rising edge: at most two steps before the gather, at most one of them an all-to-all. *)
Theorem rising_edge k v0 v1 v2 : is_middle k -> wf v0 -> typed Single AllGather v0 v1 -> typed Single k v1 v2 ->
  exists p u, [/\ trun Single v0 p u, typed Single AllGather u v2, all is_middle (kinds p), size p <= 2 &
                  count is_alltoall (kinds p) <= 1].
Proof.
move=> kM w0 G A; have [w1 g1] := preservation w0 G; have [w2 g2] := preservation w1 A.
have G' := typed_wstep sz_prime w0 (k := AllGather) _ G.
have perm_gather y : wf y -> glob y = glob v0 -> wstep (glob v2) N Single AllGather (loc y) (loc v2) ->
    exists u, typed Single AllPermute y u /\ typed Single AllGather u v2.
  move=> wy gy /(gather_into w2) [u [t L wu gu]]; exists u; split=> //; split=> //.
  by rewrite gy gu g2 g1.
case: k kM A => // _ A; last first.
  case: A => [_ _ L _]; have [//||u [t1 t2]] := perm_gather v0 w0; first by rewrite -L g2 g1; apply: G'.
  by exists [:: (AllPermute, u)], u.
case: G => i [xs [okx [ys0 [E0 Ev1]]]]; case: A => k [l [xs' [okx' [ys' [c [kl E1 L1 Ev2]]]]]].
have m_pr := ok_factor sz_prime okx; have m'_pr := ok_factor sz_prime okx'.
move: m_pr m'_pr; set m := span sz xs; set m' := span sz xs'; rewrite /= => m_pr m'_pr.
have L2 : loc v2 = mul k m' c by rewrite Ev2.
have L1' : mul i m (loc v0) = mul l m' c by rewrite -L1 Ev1.
have n0 := wf_node w0; have n2 := wf_node w2; rewrite g2 g1 in n2.
(* the common end: an all-to-all from v0, a permute, a gather *)
have finish e : k != i -> loc v0 = mul l m' e -> c = mul i m e -> exists p u,
    [/\ trun Single v0 p u, typed Single AllGather u v2, all is_middle (kinds p), size p <= 2 &
        count is_alltoall (kinds p) <= 1].
  move=> ki Lv0 Ec; have Ek : axs v0 k = xs' ++ ys' by rewrite -E1 Ev1 /= upd_other.
  pose u1 := Ty (mul k m' e) (upd (upd (axs v0) k ys') l (xs' ++ axs v0 l)) (glob v0).
  have A1 : alltoall_rule sz k l xs' v0 u1 by exists ys', e.
  have wu1 := alltoall_wf w0 A1.
  have [//||u [t1 t2]] := perm_gather u1 wu1.
    have nu1 := wf_node wu1; rewrite g2 g1; split=> //.
    by exists i, m; split=> //; rewrite L2 Ec mulC.
  exists [:: (AllToAll, u1); (AllPermute, u)], u; split=> //; split=> //.
  by exists k, l, xs'.
case: (eqVneq k i) => [Eki|ki]; last first.
  case: (eqVneq i l) L1' => [Eil|il] L1'; last first.
    by have [e [Lv0 Ec]] := split_neq il L1'; exact: (finish e ki Lv0 Ec).
  rewrite -Eil in L1'; case: (eqVneq m m') => [Em|ne].
    have Ec : loc v0 = c by apply: (@mul_inj _ i m) => //; [exact: prime_gt0 | rewrite L1' Em].
    have [//||u [t1 t2]] := perm_gather v0 w0.
      by rewrite g2 g1; split=> //; exists k, m'; rewrite L2 Ec.
    by exists [:: (AllPermute, u)], u.
  have co : coprime m m' by rewrite prime_coprime // dvdn_prime2.
  have [e [Lv0 Ec]] := split_eq co (prime_gt0 m'_pr) L1'.
  by move: Lv0; rewrite {1}Eil => Lv0; exact: (finish e ki Lv0 Ec).
(* k = i: the two axes swap by a permute first *)
rewrite {k}Eki in kl E1 L2 Ev2 finish.
have il : i != l := kl; have [e [Lv0 Ec]] := split_neq il L1'.
have E01 : ys0 = xs' ++ ys' by rewrite -E1 Ev1 /= upd_same.
have P : perm_eq (axs v0 i) (xs' ++ xs ++ ys') by rewrite E0 E01 perm_catCA.
have wu0 := reorder_wf w0 P; set u0 := Ty _ _ _ in wu0.
pose u1 := Ty (mul i m' e) (upd (upd (axs u0) i (xs ++ ys')) l (xs' ++ axs u0 l)) (glob v0).
exists [:: (AllPermute, u0); (AllToAll, u1)], u1; split=> //.
  split; first by split.
  split=> //; exists i, l, xs'; split=> //; exists (xs ++ ys'), e; split=> //=; by rewrite upd_same.
exists i, xs; split=> //; exists ys'; split; first by rewrite /= upd_other // upd_same.
rewrite Ev2 Ev1 /= Ec mulC; congr Ty; apply/ffunP=> t; rewrite !ffunE.
case: (eqVneq t l) => [->|tl]; first by rewrite eq_sym (negPf il).
by case: eqP.
Qed.

(** Lemma 4.7, falling edge: the rising edge read backwards. *)
Theorem falling_edge k v0 v1 v2 : is_middle k -> wf v0 -> typed Single k v0 v1 -> typed Single DynSlice v1 v2 ->
  exists p u, [/\ typed Single DynSlice v0 u, trun Single u p v2, all is_middle (kinds p), size p <= 2 &
                  count is_alltoall (kinds p) <= 1].
Proof.
move=> kM w0 A S; have [w1 g1] := preservation w0 A; have [w2 g2] := preservation w1 S.
have kM' : is_middle (flip k) by case: k kM {A}.
have [p [u [R G K Z C]]] := rising_edge kM' w2 (typed_rev w1 S) (typed_rev w0 A).
have [wu _] := trun_wf w2 R; have [q [Rq Kq]] := trun_rev w2 R.
have E : [seq flip x | x <- kinds p] = kinds p.
  by elim: (kinds p) K => [|[] ks IH] //= /IH ->.
exists q, u; split=> //; first exact: (typed_rev wu G).
- by rewrite Kq E all_rev.
- by rewrite -(size_map fst) -/(kinds q) Kq size_rev E size_map.
by rewrite Kq E count_rev.
Qed.

(** ** Lemma 4.7 for several axes at once (Section 7.1)

    The all-to-all may leave a part of the gathered factor behind in each of two dimensions. So it becomes an
    all-to-all and up to two gathers, with a permute before and after it. Three operations for two are needed indeed:
    see the last erratum of docs/proofs.md. With single axes one gather is enough, as in [rising_edge]. *)
Theorem rising_edge_wide w k v0 v1 v2 : is_middle k -> wf v0 -> typed w AllGather v0 v1 -> typed w k v1 v2 ->
  exists p u q, [/\ trun w v0 p u, trun w u q v2, all is_middle (kinds p), all is_gather (kinds q) &
    [/\ size p <= 3, count is_alltoall (kinds p) <= 1, size q <= (if w is Single then 1 else 2) &
        theight v0 (p ++ q) <= maxn (tsize v0) (tsize v2)]].
Proof.
move=> kM w0 G A; have [w1 g1] := preservation w0 G; have [w2 g2] := preservation w1 A.
have G' : wstep (glob v0) N w AllGather (loc v0) (loc v1) by apply: typed_wstep G.
have finish y p u q : trun w v0 p y -> wf y -> glob y = glob v0 -> loc u = loc y -> wf u /\ glob u = glob v2 ->
    trun w u q v2 -> all is_middle (kinds p) -> all is_gather (kinds q) -> size p <= 2 ->
    count is_alltoall (kinds p) <= 1 -> size q <= (if w is Single then 1 else 2) ->
  exists p u q, [/\ trun w v0 p u, trun w u q v2, all is_middle (kinds p), all is_gather (kinds q) &
    [/\ size p <= 3, count is_alltoall (kinds p) <= 1, size q <= (if w is Single then 1 else 2) &
        theight v0 (p ++ q) <= maxn (tsize v0) (tsize v2)]].
  move=> R1 wy gy L [wu gu] R2 K1 K2 z1 c1 z2.
  have P : typed w AllPermute y u by split=> //; rewrite gu gy g2 g1.
  have R : trun w v0 (p ++ [:: (AllPermute, u)]) u by apply: run_cat R1 _.
  have K : all is_middle (kinds (p ++ [:: (AllPermute, u)])) by rewrite kinds_cat all_cat K1.
  exists (p ++ [:: (AllPermute, u)]), u, q; split=> //; split=> //.
  - by rewrite size_cat addn1.
  - by rewrite kinds_cat count_cat addn0.
  apply: (typed_normal_height sz_prime w0 (run_cat R R2)).
  by exists [::], (kinds (p ++ [:: (AllPermute, u)])), (kinds q); rewrite kinds_cat.
case: k kM A => // _ A; last first.
  case: A => [_ _ L gA]; have st := G'; rewrite L -g1 -g2 in st.
  have [u [t Lu wu gu]] := gather_into w2 st.
  by apply: (finish v0 [::] u [:: (AllGather, v2)]) => //; case: (w).
have A' : wstep (glob v0) N w AllToAll (loc v1) (loc v2) by rewrite -g1; apply: typed_wstep A.
have [c [p [q [sp zp sq [zq zs _]]]]] := weak_rising G' A'.
rewrite -g1 -g2 in sq; have [q' [u [Rq Kq Lu wu]]] := raise_gathers sz_prime w2 sq.
have Zq : size q' <= (if w is Single then 1 else 2).
  have -> : size q' = size q by rewrite -(size_map fst q') -/(kinds q') Kq size_map.
  by case: (w) zs zq => // /(_ erefl).
have Gq : all is_gather (kinds q') by rewrite Kq; case: sq.
case: p sp zp => [[/= E _] _ | [k1 x] [|//] /seg_inv [st K1 sg] _].
  by apply: (finish v0 [::] u q') => //; rewrite Lu.
case: k1 st K1 => // st _; have [y' [y [t1 t2 Ly [wy gy]]]] := lower_alltoall_typed sz_prime w0 st.
by case: sg => /= E _; apply: (finish y [:: (AllPermute, y'); (AllToAll, y)] u q'); rewrite // Lu Ly E.
Qed.

(** The falling edge, read backwards. *)
Theorem falling_edge_wide w k v0 v1 v2 : is_middle k -> wf v0 -> typed w k v0 v1 -> typed w DynSlice v1 v2 ->
  exists p u q, [/\ trun w v0 p u, trun w u q v2, all is_slice (kinds p), all is_middle (kinds q) &
    [/\ size p <= (if w is Single then 1 else 2), size q <= 3, count is_alltoall (kinds q) <= 1 &
        theight v0 (p ++ q) <= maxn (tsize v0) (tsize v2)]].
Proof.
move=> kM w0 A S; have [w1 g1] := preservation w0 A; have [w2 g2] := preservation w1 S.
have kM' : is_middle (flip k) by case: k kM {A}.
have [p [u [q [Rp Rq Kp Kq [zp cp zq _]]]]] := rising_edge_wide kM' w2 (typed_rev w1 S) (typed_rev w0 A).
have [wu _] := trun_wf w2 Rp; have [p' [Rp' Kp']] := trun_rev w2 Rp; have [q' [Rq' Kq']] := trun_rev wu Rq.
have Ep : [seq flip x | x <- kinds p] = kinds p by elim: (kinds p) Kp => [|[] ks IH] //= /IH ->.
have Eq : all is_slice [seq flip x | x <- kinds q] by elim: (kinds q) Kq => [|[] ks IH] //= /IH ->.
have Mp : all is_middle (kinds p') by rewrite Kp' Ep all_rev.
have Sq : all is_slice (kinds q') by rewrite Kq' all_rev.
exists q', u, p'; split=> //; split.
- by rewrite -(size_map fst) -/(kinds q') Kq' size_rev !size_map.
- by rewrite -(size_map fst) -/(kinds p') Kp' size_rev !size_map.
- by rewrite Kp' Ep count_rev.
apply: (typed_normal_height sz_prime w0 (run_cat Rq' Rp')).
by exists (kinds q'), (kinds p'), [::]; rewrite kinds_cat cats0.
Qed.
End Edges.
