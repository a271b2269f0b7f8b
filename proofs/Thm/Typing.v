(** The typing rules: preservation, what they do to local shapes, and lowering of one weak step on prime axes. *)
From mathcomp Require Import all_ssreflect all_fingroup zify.
From Redistrib Require Import Spec.Sequences Spec.Weak Spec.Types Spec.Collectives Spec.LowLevel.
From Redistrib Require Import Thm.Arith Thm.WeakDiamonds Thm.WeakNormalForm Thm.TypeMeaning.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Section Rules.
Variables (n : nat) (sz : 'I_n -> nat) (r : nat).
Hypothesis sz_prime : forall a, prime (sz a).
Local Notation ty := (ty n r).
Local Notation wf := (@wf n sz r).
Local Notation span := (span sz).
Local Notation N := (ndev sz).
Implicit Types (v u : ty) (xs ys l : seq 'I_n) (a : 'I_n) (i j : 'I_r) (c : shape r).

Lemma sz_gt0 a : 0 < sz a. Proof. exact: prime_gt0. Qed.
Hint Resolve sz_gt0 : core.

(** ** Spans and factors *)
Lemma span_nil : span [::] = 1. Proof. exact: big_nil. Qed.

Lemma span_perm xs ys : perm_eq xs ys -> span xs = span ys.
Proof. exact: perm_big. Qed.

Lemma ok_factor w xs : ok w xs -> factor w (span xs).
Proof.
case: w => /=; case: xs => [|a [|b xs]] //= _; rewrite !span_cons ?span_nil ?muln1 //.
  exact: prime_gt1.
by have := prime_gt1 (sz_prime a); have := prime_gt1 (sz_prime b); have := span_gt0 sz_gt0 xs; nia.
Qed.

Lemma factor_ok w xs : factor w (span xs) -> ok w xs.
Proof.
case: w; case: xs => [|a [|b xs]] //=; rewrite ?span_nil // !span_cons => /prime_mul_eq1 [] E.
  by have := prime_gt1 (sz_prime a); rewrite E.
by have := prime_gt1 (sz_prime b); have := span_gt0 sz_gt0 xs; nia.
Qed.

(** A divisor of the span of some axes is the span of some of them; this is where primality is needed. *)
Lemma pick q l : q %| span l -> exists xs, subseq xs l /\ span xs = q.
Proof.
elim: l q => [|a l IH] q; first by rewrite span_nil dvdn1 => /eqP ->; exists [::]; rewrite span_nil.
rewrite span_cons; case/boolP: (sz a %| q) => [/dvdnP [q' ->] | aq].
  rewrite mulnC dvdn_pmul2l // => /IH [xs [sx <-]].
  by exists (a :: xs); rewrite span_cons /= eqxx.
rewrite Gauss_dvdr; last by rewrite coprime_sym prime_coprime.
case/IH => xs [sx <-]; exists xs; split=> //; exact: subseq_trans sx (subseq_cons _ _).
Qed.

(** ** Updates *)
Lemma upd_same (A : Type) (f : {ffun 'I_r -> A}) i x : upd f i x i = x.
Proof. by rewrite ffunE eqxx. Qed.

Lemma upd_other (A : Type) (f : {ffun 'I_r -> A}) i x k : k != i -> upd f i x k = f k.
Proof. by move=> /negPf ki; rewrite ffunE ki. Qed.

Lemma occ_upd c (f : {ffun 'I_r -> seq 'I_n}) g c' g' i l a :
  occurrences (Ty c' (upd f i l) g') a + count_mem a (f i) = occurrences (Ty c f g) a + count_mem a l.
Proof.
rewrite /occurrences /= (bigD1 i) //= upd_same [in RHS](bigD1 i) //=.
rewrite (eq_bigr (fun k => count_mem a (f k))) => [|k ki]; last by rewrite upd_other.
move: (count_mem a l) (count_mem a (f i)) (\sum_(_ < _ | _) _) => x y z; lia.
Qed.

Lemma occ_le c (f : {ffun 'I_r -> seq 'I_n}) g c' g' i l a : count_mem a l <= count_mem a (f i) ->
  occurrences (Ty c' (upd f i l) g') a <= occurrences (Ty c f g) a.
Proof. by move=> H; rewrite -(leq_add2r (count_mem a (f i))) (occ_upd c f g) leq_add2l. Qed.

Lemma occ_cat c (f : {ffun 'I_r -> seq 'I_n}) g c' g' i xs a :
  occurrences (Ty c' (upd f i (xs ++ f i)) g') a = occurrences (Ty c f g) a + count_mem a xs.
Proof. by apply: (@addIn (count_mem a (f i))); rewrite (occ_upd c f g) count_cat addnA. Qed.

Lemma occ_drop c (f : {ffun 'I_r -> seq 'I_n}) g c' g' i xs ys a : f i = xs ++ ys ->
  occurrences (Ty c' (upd f i ys) g') a + count_mem a xs = occurrences (Ty c f g) a.
Proof.
move=> E; apply: (@addIn (count_mem a ys)).
by rewrite -(occ_upd c f g c' g' i ys a) E count_cat addnA.
Qed.

Lemma wfI v : (forall i, 0 < glob v i) -> (forall i, loc v i * span (axs v i) = glob v i) ->
  (forall a, occurrences v a <= 1) -> wf v.
Proof.
by move=> g0 cut aff; apply/andP; split; apply/forallP=> // i; rewrite g0 /=; apply/eqP.
Qed.

(** ** Preservation *)
Lemma gather_wf i xs v v' : wf v -> gather_rule sz i xs v v' -> wf v'.
Proof.
move=> w [ys [E ->]]; apply: wfI => /= [k|k|a]; first exact: wf_glob w.
  rewrite !ffunE; case: (eqVneq k i) => [->|_]; last exact: wf_cut w.
  by rewrite -(wf_cut i w) E span_cat mulnA.
apply: leq_trans (wf_affine a w); case: v E {w} => c f g /= E.
by apply: occ_le; rewrite E count_cat leq_addl.
Qed.

Lemma slice_wf i xs v v' : wf v -> slice_rule sz i xs v v' -> wf v'.
Proof.
move=> w [c [ux fx E ->]]; apply: wfI => /= [k|k|a]; first exact: wf_glob w.
  have := wf_cut k w; rewrite E !ffunE; case: (eqVneq k i) => [->|_] //.
  by rewrite span_cat mulnA.
have := wf_affine a w; case: v E fx {w} => c0 f g /= E fx; rewrite (occ_cat c0 f g).
case: (boolP (a \in xs)) => ax; last by rewrite (count_memPn ax) addn0.
by have /eqP -> := allP fx a ax; rewrite (count_uniq_mem a ux) ax.
Qed.

Lemma alltoall_wf i j xs v v' : wf v -> alltoall_rule sz i j xs v v' -> wf v'.
Proof.
move=> w [ys [c [ij E L ->]]]; apply: wfI => /= [k|k|a]; first exact: wf_glob w.
  have := wf_cut k w; rewrite L !ffunE; case: (eqVneq k j) => [->|kj].
    by rewrite eq_sym (negPf ij) span_cat mulnA.
  by case: (eqVneq k i) => [->|//]; rewrite E span_cat mulnA.
have := wf_affine a w; case: v E L {w} => c0 f g /= E L.
rewrite -[f j](@upd_other _ f i ys j) 1?eq_sym // (occ_cat c0 (upd f i ys) g).
by rewrite (occ_drop c0 g c0 g a E).
Qed.

(** Preservation: the rules keep well-formedness and the global shape. *)
Theorem preservation w k v v' : wf v -> typed sz w k v v' -> wf v' /\ glob v' = glob v.
Proof.
move=> wv; case: k => /=.
- move=> [i [xs [_ R]]]; split; first exact: slice_wf R.
  by case: R => c [_ _ _ ->].
- move=> [i [j [xs [_ R]]]]; split; first exact: alltoall_wf R.
  by case: R => ys [c [_ _ _ ->]].
- by case=> _ wv' _ ->.
move=> [i [xs [_ R]]]; split; first exact: gather_wf R.
by case: R => ys [_ ->].
Qed.

(** ** From typed to weak *)
Lemma wf_node v : wf v -> node (glob v) N (loc v).
Proof.
move=> w; apply/andP; split; last by rewrite -(vol_copies w) dvdn_mulr.
by apply/forallP=> i; rewrite -(wf_cut i w) dvdn_mulr.
Qed.

Lemma typed_wstep w k v v' : wf v -> k <> AllPermute -> typed sz w k v v' ->
  wstep (glob v) N w k (loc v) (loc v').
Proof.
move=> wv kp tv; have [wv' G] := preservation wv tv.
have nv := wf_node wv; have := wf_node wv'; rewrite G => nv'.
case: k kp tv => // _ /=; split=> //.
- by case: tv => i [xs [/ok_factor F [c [_ _ L ->]]]]; exists i, (span xs).
- by case: tv => i [j [xs [/ok_factor F [ys [c [ij _ L ->]]]]]]; exists i, j, (span xs), c.
by case: tv => i [xs [/ok_factor F [ys [_ ->]]]]; exists i, (span xs).
Qed.

(** ** Bringing axes to the front *)
Lemma bring_perm i xs v : wf v -> uniq xs -> {subset xs <= axs v i} ->
  perm_eq (axs v i) (xs ++ [seq a <- axs v i | a \notin xs]).
Proof.
move=> w ux sx; apply: uniq_perm; first exact: wf_uniq w.
  rewrite cat_uniq ux filter_uniq ?(wf_uniq i w) // andbT /=.
  by apply/hasPn=> a; rewrite mem_filter => /andP [].
move=> a; rewrite mem_cat mem_filter; case: (boolP (a \in xs)) => //= /sx -> //.
Qed.

Lemma bring_wf i xs v : wf v -> uniq xs -> {subset xs <= axs v i} -> wf (bring i xs v).
Proof.
move=> w ux sx; have P := bring_perm w ux sx; apply: wfI => /= [k|k|a]; first exact: wf_glob w.
  rewrite -(wf_cut k w) ffunE; case: eqP => [->|//]; by rewrite (span_perm P).
apply: leq_trans (wf_affine a w); case: v P {w sx} => c f g /= P.
by apply: occ_le; have /seq.permP -> := P.
Qed.

Lemma bring_equiv i xs v : wf v -> uniq xs -> {subset xs <= axs v i} -> equiv sz v (bring i xs v).
Proof. by move=> w ux sx; apply: (lemma_5_1 sz_gt0) => //; apply: bring_wf. Qed.

Lemma bring_axs i xs v : axs (bring i xs v) i = xs ++ [seq a <- axs v i | a \notin xs].
Proof. exact: upd_same. Qed.

(** ** Lowering one weak step from a given type *)
Lemma lower_cut i m v c : wf v -> node (glob v) N c -> c i = loc v i * m ->
  exists xs, [/\ uniq xs, {subset xs <= axs v i} & span xs = m].
Proof.
move=> w /andP [/forallP /(_ i) ci _] E.
have : m %| span (axs v i) by move: ci; rewrite E -(wf_cut i w) dvdn_pmul2l // (wf_loc i w).
case/pick => xs [sx <-]; exists xs; split=> //; last exact: mem_subseq.
exact: subseq_uniq sx (wf_uniq i w).
Qed.

Lemma lower_gather w v c' : wf v -> wstep (glob v) N w AllGather (loc v) c' ->
  exists i xs v', [/\ [/\ ok w xs, uniq xs & {subset xs <= axs v i}],
                      gather_rule sz i xs (bring i xs v) v' & loc v' = c'].
Proof.
move=> wv [_ nc [i [m [mF E]]]].
have [|xs [ux sx Em]] := @lower_cut i m v c' wv nc; first by rewrite E ffunE eqxx.
exists i, xs; eexists; split; first by split=> //; apply: factor_ok; rewrite Em.
  by exists [seq a <- axs v i | a \notin xs]; split; [exact: bring_axs | reflexivity].
by rewrite /= Em E.
Qed.

Lemma lower_alltoall w v c' : wf v -> wstep (glob v) N w AllToAll (loc v) c' ->
  exists i j xs v', [/\ [/\ ok w xs, uniq xs & {subset xs <= axs v i}],
                        alltoall_rule sz i j xs (bring i xs v) v' & loc v' = c'].
Proof.
move=> wv [_ nc [i [j [m [d [ij mF L E]]]]]].
have [|xs [ux sx Em]] := @lower_cut i m v c' wv nc; first by rewrite E L !ffunE eqxx (negPf ij).
exists i, j, xs; eexists; split; first by split=> //; apply: factor_ok; rewrite Em.
  exists [seq a <- axs v i | a \notin xs], d; split; [by [] | exact: bring_axs | by rewrite Em | reflexivity].
by rewrite /= Em E.
Qed.

Lemma lower_slice_at w i m v c' : wf v -> factor w m -> node (glob v) N c' -> loc v = mul i m c' ->
  exists xs v', [/\ ok w xs, span xs = m, slice_rule sz i xs v v' & loc v' = c'].
Proof.
move=> wv mF /andP [_ nc] E.
pose fr := [seq a <- enum 'I_n | free v a].
have Efr : span fr = copies sz v by rewrite /TypeMeaning.copies /Types.span /fr big_filter big_enum_cond.
have : m %| span fr.
  have g0 : 0 < vol (glob v) by apply: prodn_gt0 => k; apply: wf_glob wv.
  case/dvdnP: nc => t nc; apply/dvdnP; exists t; apply/eqP; rewrite Efr -(eqn_pmul2l g0) (vol_copies wv) E vol_mul.
  by rewrite mulnCA nc; apply/eqP; lia.
case/pick => xs [sx Em]; exists xs; eexists; split; [by apply: factor_ok; rewrite Em | by [] | | ].
  exists c'; split; last reflexivity; last by rewrite Em.
  - by apply: subseq_uniq sx _; rewrite filter_uniq // enum_uniq.
  by apply/allP=> a /(mem_subseq sx); rewrite mem_filter => /andP [].
by [].
Qed.

Lemma lower_slice w v c' : wf v -> wstep (glob v) N w DynSlice (loc v) c' ->
  exists v', typed sz w DynSlice v v' /\ loc v' = c'.
Proof.
move=> wv [_ nc [i [m [mF E]]]]; have [xs [v' [okx _ R L]]] := lower_slice_at wv mF nc E.
by exists v'; split=> //; exists i, xs.
Qed.

(** A weak step, lowered to a typed step from some member of the class. *)
Lemma lower_some w k v c' : wf v -> wstep (glob v) N w k (loc v) c' ->
  exists u v', [/\ wf u, glob u = glob v, loc u = loc v, typed sz w k u v' & loc v' = c'].
Proof.
move=> wv; case: k => st.
- by have [v' [t L]] := lower_slice wv st; exists v, v'.
- have [i [j [xs [v' [[okx ux sx] R L]]]]] := lower_alltoall wv st.
  by exists (bring i xs v), v'; split=> //; [exact: bring_wf | exists i, j, xs].
- by case: (wstep_nopermute st).
have [i [xs [v' [[okx ux sx] R L]]]] := lower_gather wv st.
by exists (bring i xs v), v'; split=> //; [exact: bring_wf | exists i, xs].
Qed.

(** Definition 5.3 is the step relation on local shapes: the graph of Section 7.2 is the paper's relation. *)
Theorem weak_step_iff w k v1 v2 : wf v1 -> wf v2 -> glob v1 = glob v2 ->
  weak sz w k v1 v2 <-> wstep (glob v1) N w k (loc v1) (loc v2).
Proof.
move=> w1 w2 G; split=> [[kp [u1 [u2 [[x1 x2 g1 g2] e1 e2 t]]]] | st].
  rewrite (lemma_5_1_converse sz_gt0 w1 x1) // (lemma_5_1_converse sz_gt0 w2 x2) //.
  by rewrite -g1; apply: typed_wstep.
have kp : k <> AllPermute by move=> E; move: st; rewrite E => /wstep_nopermute.
have [u [v' [wu gu lu t L]]] := lower_some w1 st; have [wv' gv'] := preservation wu t.
split=> //; exists u, v'; split=> //; first by split=> //; rewrite gv' gu.
  exact: lemma_5_1.
by apply: lemma_5_1 => //; rewrite gv' gu.
Qed.

(** A weak type exists iff the implementation's node test says so. *)
Theorem node_iff (s c : shape r) : (forall i, 0 < s i) ->
  node s N c <-> exists v, [/\ wf v, glob v = s & loc v = c].
Proof.
move=> s0; split=> [nc | [v [wv <- <-]]]; last exact: wf_node.
have cs k : c k %| s k by case/andP: nc => /forallP /(_ k).
suff [v [wv gv lv]] : exists v, [/\ wf v, glob v = s & loc v = [ffun k => if k \in enum 'I_r then c k else s k]].
  by exists v; split=> //; rewrite lv; apply/ffunP=> k; rewrite ffunE mem_enum.
have ns : node s N s by apply/andP; split; [apply/forallP | rewrite dvdn_mull].
elim: (enum 'I_r) (enum_uniq 'I_r) => [|i l IH] /=.
  move=> _; exists (Ty s [ffun=> [::]] s); split=> //; last by apply/ffunP=> k; rewrite ffunE.
  apply: wfI => //= [k|a]; first by rewrite ffunE span_nil muln1.
  by rewrite /occurrences big1 // => k _; rewrite ffunE.
move=> /andP [il /IH [v [wv gv lv]]] {IH}.
set d := [ffun k => _]; have nd : node s N d.
  apply: node_between nc ns _ _ => k; rewrite ffunE; by case: ifP.
have E : loc v = mul i (s i %/ c i) d.
  rewrite lv; apply/ffunP=> k; rewrite !ffunE inE; case: (eqVneq k i) => [->|//]; rewrite (negPf il) /=.
  by rewrite mulnC divnK.
have c0 k : 0 < c k by apply: dvdn_gt0 (s0 k) (cs k).
have q0 : 0 < s i %/ c i by rewrite divn_gt0 // dvdn_leq.
case: (eqVneq (s i %/ c i) 1) => [q1|q1].
  by exists v; split=> //; rewrite E q1 mul1.
have [xs [v' [okx _ R L]]] : exists xs v', [/\ ok Multi xs, span xs = s i %/ c i, slice_rule sz i xs v v' & loc v' = d].
  by apply: lower_slice_at; rewrite ?gv //=; lia.
by exists v'; split=> //; [exact: slice_wf R | case: R => ? [_ _ _ ->]].
Qed.
End Rules.
