(** Section 6: lowering, lifting, and near-optimality, for single- and multi-axis collectives at once. *)
From mathcomp Require Import all_ssreflect all_fingroup zify.
From Redistrib Require Import Spec.Sequences Spec.Weak Spec.Types Spec.Collectives Spec.LowLevel.
From Redistrib Require Import Thm.Arith Thm.WeakDiamonds Thm.WeakNormalForm Thm.TypeMeaning Thm.Typing Thm.StrongNormalForm.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Section Lowering.
Variables (n : nat) (sz : 'I_n -> nat) (r : nat).
Hypothesis sz_prime : forall a, prime (sz a).
Local Notation ty := (ty n r).
Local Notation dev := (dev sz).
Local Notation wf := (@wf n sz r).
Local Notation asg := (@assignment n sz r).
Local Notation N := (ndev sz).
Local Notation "<| f , v |>" := (@Assign n sz r f v) (at level 0).
Implicit Types (v u : ty) (a b : asg) (f : {perm dev}) (i j : 'I_r) (xs ys : seq 'I_n).
Implicit Types (p : trace (shape r)) (q : trace asg).

Let sz_gt0 := sz_gt0 sz_prime.

(** Equivalent types are the same placement under another device map: no data moves. *)
Lemma rename f v u : equiv sz v u -> exists f', same_place <|f, v|> <|f', u|>.
Proof. by move=> [g E]; exists (g * f)%g => d; rewrite /place /= E invMg permM permKV. Qed.

(** ** Lowering one step (Lemma 6.3) *)
Lemma lower_step w k f v c' : wf v -> wstep (glob v) N w k (loc v) c' ->
  exists b, [/\ lstep w k <|f, v|> b, wf (ltype b), glob (ltype b) = glob v & loc (ltype b) = c'].
Proof.
move=> wv; case: k => st.
- have [v' [t L]] := lower_slice sz_prime wv st; have [w' g'] := preservation wv t.
  by exists <|f, v'|>.
- have [i [j [xs [v' [[okx ux sx] R L]]]]] := lower_alltoall sz_prime wv st.
  have wb := bring_wf wv ux sx; have [f' S] := rename f (bring_equiv sz_prime wv ux sx).
  exists <|f', v'|>; split=> //=; first by exists i, j, xs.
    exact: alltoall_wf wb R.
  by case: R => ys [c [_ _ _ ->]].
- by case: (wstep_nopermute st).
have [i [xs [v' [[okx ux sx] R L]]]] := lower_gather sz_prime wv st.
have wb := bring_wf wv ux sx; have [f' S] := rename f (bring_equiv sz_prime wv ux sx).
exists <|f', v'|>; split=> //=; first by exists i, xs.
  exact: gather_wf wb R.
by case: R => ys [_ ->].
Qed.

(** Lemma 6.3, for base offset maps of types: a weak collective applies to every semantic type of its source class,
    under every device map, and ends in its target class. *)
Theorem lowering_lemma w k v1 v2 v f : wf v1 -> wf v2 -> glob v1 = glob v2 -> weak sz w k v1 v2 ->
  wf v -> glob v = glob v1 -> equiv sz v1 v ->
  exists f' v', [/\ lstep w k <|f, v|> <|f', v'|>, wf v', glob v' = glob v2 & equiv sz v2 v'].
Proof.
move=> w1 w2 G /(weak_step_iff sz_prime _ _ w1 w2 G) st wv gv e.
have L := lemma_5_1_converse sz_gt0 w1 wv (esym gv) e; rewrite L -gv in st.
have [[f' v'] [S w' g' L']] := lower_step f wv st; exists f', v'; split=> //; first by rewrite g' gv.
by apply: lemma_5_1 => //; rewrite g' gv.
Qed.

(** Theorem 6.4: sequences, step by step, so without a permute, at the same costs. *)
Theorem lowering_theorem w p f v c' : wf v -> wrun (glob v) N w (loc v) p c' ->
  exists q b, [/\ lrun w <|f, v|> q b, kinds q = kinds p, loc (ltype b) = c', wf (ltype b) /\ glob (ltype b) = glob v &
    forall M, lcost M <|f, v|> q = wcost M (loc v) p].
Proof.
elim: p f v => [|[k x] p IH] f v wv /=; first by move=> <-; exists [::], <|f, v|>.
move=> [st R]; have [[f1 u] [S /= wu gu Lu]] := lower_step f wv st.
rewrite -Lu -gu in R; have [q [b [Rq K L [wb gb] C]]] := IH f1 _ wu R.
exists ((k, <|f1, u|>) :: q), b; split=> //; [by rewrite /= K | by rewrite gb gu | ].
by move=> M; rewrite /lcost /wcost /= -Lu; congr (_ + _); apply: C.
Qed.

(** ** Lifting (Lemma 6.6) *)
Lemma lstep_wf w k a b : wf (ltype a) -> lstep w k a b ->
  wf (ltype b) /\ glob (ltype b) = glob (ltype a).
Proof.
move=> wa; case: k => /=.
- by move=> [_ t]; apply: (preservation (k := DynSlice) wa t).
- move=> [i [j [xs [okx ux sx _ R]]]]; split; first exact: alltoall_wf (bring_wf wa ux sx) R.
  by case: R => ys [c [_ _ _ ->]].
- by case.
move=> [i [xs [okx ux sx _ R]]]; split; first exact: gather_wf (bring_wf wa ux sx) R.
by case: R => ys [_ ->].
Qed.

Lemma lrun_wf w q a b : wf (ltype a) -> lrun w a q b -> wf (ltype b) /\ glob (ltype b) = glob (ltype a).
Proof.
elim: q a => [|[k x] q IH] a wa /=; first by move=> <-.
by move=> [/(lstep_wf wa) [wx <-] /(IH _ wx)].
Qed.

Lemma lpermute_equiv w a b : lstep w AllPermute a b -> equiv sz (ltype a) (ltype b).
Proof.
case=> _ _ [g E]; exists (dmap b * g * (dmap a)^-1)%g => h.
by have := E (dmap b h); rewrite /place permK !permM.
Qed.

Lemma lstep_wstep w k a b : wf (ltype a) -> k <> AllPermute -> lstep w k a b ->
  wstep (glob (ltype a)) N w k (loc (ltype a)) (loc (ltype b)).
Proof.
move=> wa kp; case: k kp => // _ /=.
- by case=> _; apply: (typed_wstep sz_prime wa (k := DynSlice)).
- move=> [i [j [xs [okx ux sx _ R]]]].
  by apply: (typed_wstep sz_prime (bring_wf wa ux sx) (k := AllToAll)) => //; exists i, j, xs.
move=> [i [xs [okx ux sx _ R]]].
by apply: (typed_wstep sz_prime (bring_wf wa ux sx) (k := AllGather)) => //; exists i, xs.
Qed.

(** Lemma 6.6: the weak sequence has exactly the steps that are no permute, and costs no more. *)
Theorem lifting_lemma w q a b : wf (ltype a) -> lrun w a q b ->
  exists p, [/\ wrun (glob (ltype a)) N w (loc (ltype a)) p (loc (ltype b)),
                kinds p = [seq k <- kinds q | ~~ is_permute k] &
                forall M, wcost M (loc (ltype a)) p <= lcost M a q].
Proof.
elim: q a => [|[k x] q IH] a wa /=; first by move=> ->; exists [::].
move=> [st R]; have [wx gx] := lstep_wf wa st; have [p [Rp Kp Cp]] := IH _ wx R; rewrite gx in Rp.
case: (permuteP k) st => [E|kp] st.
  move: st; rewrite E => /lpermute_equiv e.
  have L := lemma_5_1_converse sz_gt0 wa wx (esym gx) e.
  exists p; rewrite L; split=> // M; apply: leq_trans (Cp M) _; exact: leq_addl.
exists ((k, loc (ltype x)) :: p); split=> /=; first by split=> //; apply: lstep_wstep st.
  by rewrite Kp; case: k kp {st}.
by move=> M; rewrite /wcost /lcost /= leq_add2l; apply: Cp.
Qed.

(** ** Typed sequences are low-level sequences, with the device map as it is *)
Lemma bring_front i xs ys v : uniq (axs v i) -> axs v i = xs ++ ys -> bring i xs v = v.
Proof.
move=> u E; rewrite /bring; have -> : xs ++ [seq a <- axs v i | a \notin xs] = axs v i.
  move: u; rewrite E cat_uniq => /and3P [_ /hasPn nx _]; rewrite filter_cat.
  rewrite (eq_in_filter (a2 := pred0)) => [|a ->] //; rewrite filter_pred0 /=; congr (_ ++ _).
  by apply/all_filterP/allP=> a ay; apply: nx.
by rewrite upd_id; case: v {u E}.
Qed.

Theorem typed_is_lowlevel w k f v v' : wf v -> typed sz w k v v' -> lstep w k <|f, v|> <|f, v'|>.
Proof.
move=> wv; case: k => /=.
- by [].
- move=> [i [j [xs [okx R]]]]; have [ys [c [_ E _ _]]] := R; exists i, j, xs.
  have U := wf_uniq i wv; rewrite (bring_front U E); split=> //; last by move=> a; rewrite E mem_cat => ->.
  by move: U; rewrite E cat_uniq => /and3P [].
- move=> [w1 w2 L G]; split=> //; have [g E] := lemma_5_1 sz_gt0 w1 w2 G L.
  by exists (f^-1 * g * f)%g => d; rewrite /place /= E !permM permK.
move=> [i [xs [okx R]]]; have [ys [E _]] := R; exists i, xs.
have U := wf_uniq i wv; rewrite (bring_front U E); split=> //; last by move=> a; rewrite E mem_cat => ->.
by move: U; rewrite E cat_uniq => /and3P [].
Qed.

Definition at_map f (p : trace ty) : trace asg := [seq (e.1, <|f, e.2|>) | e <- p].

Lemma lrun_typed w f (p : trace ty) v v' : wf v -> trun sz w v p v' -> lrun w <|f, v|> (at_map f p) <|f, v'|>.
Proof.
elim: p v => [|[k x] p IH] v wv /=; first by move=> ->.
by move=> [t R]; split; [apply: typed_is_lowlevel | apply: IH R; case: (preservation wv t)].
Qed.

Lemma at_map_kinds f (p : trace ty) : kinds (at_map f p) = kinds p.
Proof. by rewrite /kinds -map_comp. Qed.

Lemma lcost_cat w M q q' a b : lrun w a q b -> lcost M a (q ++ q') = lcost M a q + lcost M b q'.
Proof. exact: cost_cat. Qed.

(** The same as [raise_gathers], with costs. *)
Lemma raise_gathers_cost w p c v' : wf v' -> seg (glob v') N w is_gather c p (loc v') ->
  exists (q : trace ty) v, [/\ trun sz w v q v', kinds q = kinds p, loc v = c, wf v /\ glob v = glob v' &
    forall M f, lcost M <|f, v|> (at_map f q) = wcost M c p].
Proof.
move=> wv'; elim: p c => [|[k x] p IH] c; first by case=> /= -> _; exists [::], v'.
case/seg_inv; case: k => // st _ sg; have [q [u [R K Lu [wu gu] C]]] := IH _ sg.
rewrite -Lu -gu in st; have [v [t L]] := lower_slice sz_prime wu (wstep_flip st).
have [wv gv] := preservation wu t.
exists ((AllGather, u) :: q), v; split; rewrite /= ?K //; first by split=> //; apply: (typed_rev wu t).
  by rewrite gv.
by move=> M f; rewrite /lcost /wcost /= -Lu -L; congr (_ + _); rewrite Lu; apply: C.
Qed.

Lemma lower_end f v1 v2 : wf v1 -> wf v2 -> glob v1 = glob v2 -> loc v1 = loc v2 -> forall f', 
  lstep Single AllPermute <|f, v1|> <|f', v2|> /\ lstep Multi AllPermute <|f, v1|> <|f', v2|>.
Proof.
move=> w1 w2 G L f'; have [g E] := lemma_5_1 sz_gt0 w1 w2 G L.
by split; split=> //; exists (f'^-1 * g * f)%g => d; rewrite /place /= E !permM permK.
Qed.

Lemma lower_permute w f v1 v2 : wf v1 -> wf v2 -> glob v1 = glob v2 -> loc v1 = loc v2 -> forall f',
  lstep w AllPermute <|f, v1|> <|f', v2|>.
Proof. by move=> w1 w2 G L f'; case: (lower_end f w1 w2 G L f'); case: w. Qed.

(** The height of a low-level sequence in normal form. *)
Theorem lowlevel_normal_height w q a b : wf (ltype a) -> lrun w a q b -> normal (kinds q) ->
  lheight a q <= maxn (vol (loc (ltype a))) (vol (loc (ltype b))).
Proof.
move=> wa R; pose step (k : kind) (x y : asg) := wf (ltype x) /\ lstep w k x y.
have R' : run step a q b.
  elim: q a wa R => [|[k x] q IH] a wa //= [t R].
  by split; [split | apply: IH R; case: (lstep_wf wa t)].
apply: (normal_height (step := step)) R' => [x y [wx t]|k x y kM [wx t]|x y [wx t]].
- exact: wstep_vol_slice (lstep_wstep wx (k := DynSlice) _ t).
- case: k kM t => // _ t; last first.
    by rewrite (lemma_5_1_converse sz_gt0 wx _ _ (lpermute_equiv t)) //; case: t.
  exact: (wstep_vol_middle (k := AllToAll) _ (lstep_wstep wx _ t)).
exact: wstep_vol_gather (lstep_wstep wx (k := AllGather) _ t).
Qed.

(** Theorem 6.7 as printed: normal form except for one permute as the last step, at most [localsize v2] dearer.
    [s] is any sequence, so in particular one of minimal cost. Both cost models at once. *)
Theorem near_optimality w f v1 v2 q : wf v1 -> lrun w <|f, v1|> q <|f, v2|> ->
  exists q', [/\ lrun w <|f, v1|> (rcons q' (AllPermute, <|f, v2|>)) <|f, v2|>,
                 normal (kinds q'), ~~ has is_permute (kinds q') &
                 forall M, lcost M <|f, v1|> (rcons q' (AllPermute, <|f, v2|>))
                             <= lcost M <|f, v1|> q + vol (loc v2)].
Proof.
move=> w1 R; have [w2 /= g2] := lrun_wf (a := <|f, v1|>) w1 R.
have [p [Rp _ Cp]] := lifting_lemma (a := <|f, v1|>) w1 R.
have [d1 [d2 [p1 [p2 [p3 [s1 s2 s3 C]]]]]] := normal_form_segments Rp.
have Rnf := run_cat s1.1 (run_cat s2.1 s3.1).
have [q' [[f' u] [Rq K /= L [wu gu] Cq]]] := lowering_theorem f w1 Rnf.
have P : lstep w AllPermute <|f', u|> <|f, v2|> by apply: lower_permute => //; rewrite gu g2.
exists q'; rewrite -cats1; split.
- by apply: run_cat Rq _; split.
- by rewrite K; apply: seg_normal s1 s2 s3.
- have no (Kd : kind -> bool) x y pp : (forall k, Kd k -> ~~ is_permute k) -> seg (glob v1) N w Kd x pp y ->
      ~~ has is_permute (kinds pp).
    by move=> H [_ a]; rewrite -all_predC; apply: sub_all a.
  rewrite K !kinds_cat !has_cat !negb_or (no _ _ _ _ _ s1) ?(no _ _ _ _ _ s2) ?(no _ _ _ _ _ s3) //; by case.
move=> M; rewrite (lcost_cat _ _ Rq) /lcost /= addn0 L leq_add2r -/(lcost M _ _) Cq.
rewrite (wcost_cat _ _ s1.1) (wcost_cat _ _ s2.1) (seg_slice_cost _ s1) add0n.
exact: leq_trans (C M) (Cp M).
Qed.

(** Theorem 6.7 sharpened: with the permute before the gathers, the excess is the smaller of the two tiles,
    and the whole sequence is in normal form, hence no higher than its ends. *)
Theorem near_optimality_sharp w f v1 v2 q : wf v1 -> lrun w <|f, v1|> q <|f, v2|> ->
  exists qs qa b qg,
    [/\ lrun w <|f, v1|> (qs ++ qa ++ (AllPermute, b) :: qg) <|f, v2|>,
        [/\ all is_slice (kinds qs), all is_alltoall (kinds qa) & all is_gather (kinds qg)],
        lheight <|f, v1|> (qs ++ qa ++ (AllPermute, b) :: qg) <= maxn (vol (loc v1)) (vol (loc v2)) &
        forall M, lcost M <|f, v1|> (qs ++ qa ++ (AllPermute, b) :: qg)
                    <= lcost M <|f, v1|> q + minn (vol (loc v1)) (vol (loc v2))].
Proof.
move=> w1 R; have [w2 /= g2] := lrun_wf (a := <|f, v1|>) w1 R.
have [p [Rp _ Cp]] := lifting_lemma (a := <|f, v1|>) w1 R.
have [d1 [d2 [p1 [p2 [p3 [s1 s2 s3 C]]]]]] := normal_form_segments Rp.
have [q1 [[f1 u1] [R1 K1 /= L1 [wu1 gu1] C1]]] := lowering_theorem f w1 s1.1.
have R2w := s2.1; rewrite -L1 -gu1 in R2w.
have [q2 [[f2 u2] [R2 K2 /= L2 [wu2 gu2] C2]]] := lowering_theorem f1 wu1 R2w.
have s3' := s3; rewrite -g2 in s3'.
have [q3 [u3 [R3 K3 L3 [wu3 gu3] C3]]] := raise_gathers_cost w2 s3'.
have P : lstep w AllPermute <|f2, u2|> <|f, u3|> by apply: lower_permute => //; rewrite ?gu3 ?gu2 ?gu1 ?L2.
have R3' := lrun_typed f wu3 R3.
have RR : lrun w <|f, v1|> (q1 ++ q2 ++ (AllPermute, <|f, u3|>) :: at_map f q3) <|f, v2|>.
  by apply: run_cat R1 (run_cat R2 _).
have kk : [/\ all is_slice (kinds q1), all is_alltoall (kinds q2) & all is_gather (kinds (at_map f q3))].
  by rewrite K1 K2 at_map_kinds K3; split; [case: s1 | case: s2 | case: s3].
exists q1, q2, <|f, u3|>, (at_map f q3); split=> //.
  apply: (lowlevel_normal_height (a := <|f, v1|>) w1 RR).
  case: kk => k1 k2 k3; exists (kinds q1), (kinds q2 ++ [:: AllPermute]), (kinds (at_map f q3)).
  rewrite !kinds_cat -catA; split=> //; rewrite all_cat andbT.
  by apply: sub_all k2 => k; rewrite /is_middle => ->.
move=> M; rewrite (lcost_cat _ _ R1) (lcost_cat _ _ R2).
have -> : lcost M <|f2, u2|> ((AllPermute, <|f, u3|>) :: at_map f q3) = vol (loc u2) + lcost M <|f, u3|> (at_map f q3) by [].
rewrite C1 C2 C3 (seg_slice_cost _ s1) add0n L1 addnCA addnC leq_add //.
  exact: leq_trans (C M) (Cp M).
rewrite leq_min L2 (seg_alltoall_vol s2) (seg_slice_vol s1) /=.
by rewrite -(seg_alltoall_vol s2) (seg_gather_vol s3).
Qed.
End Lowering.
