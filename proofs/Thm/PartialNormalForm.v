(** Sums within memory: between any two ends there is a sequence in normal form, no higher than these. *)
From mathcomp Require Import all_ssreflect zify.
From Redistrib Require Import Spec.Sequences Spec.Weak Spec.PartialWeak.
From Redistrib Require Import Thm.Arith Thm.WeakNormalForm.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Section PartialNormalForm.
Variables (r : nat) (s : shape r) (N : nat).
Hypothesis s_gt0 : forall i, 0 < s i.
Local Notation node := (@node r s N).
Local Notation pnode := (@pnode r s N).
Local Notation wstep := (@wstep r s N).
Local Notation pstep := (@pstep r s N).
Local Notation prun := (@prun r s N).
Local Notation state := (pstate r).
Local Notation seg := (@seg r s N).
Implicit Types (c d u : shape r) (p m : nat) (x y z : state) (q : seq (pkind * state)).

Lemma vol_s_gt0 : 0 < vol s.
Proof. by apply: prodn_gt0. Qed.

Lemma pnode_node c p : 0 < p -> pnode (c, p) -> node c.
Proof. by move=> p0 /andP[a b]; apply/andP; split=> //; apply: dvdn_trans b; rewrite dvdn_mull. Qed.

Lemma node_pnode c : node c -> pnode (c, 1).
Proof. by rewrite /PartialWeak.pnode /= mul1n. Qed.

(** *** Segments: runs of steps of certain kinds *)
Definition pseg w (K : pkind -> bool) x q y : Prop := prun w x q y /\ all K (pkinds q).

Lemma prun_cat w x q y q' z : prun w x q y -> prun w y q' z -> prun w x (q ++ q') z.
Proof. by elim: q x => [|[k u] q IH] x /=; [move=> -> | case=> st R /(IH _ R)]. Qed.

Lemma pheight_cat w x q y q' : prun w x q y -> pheight x (q ++ q') = maxn (pheight x q) (pheight y q').
Proof.
elim: q x => [|[k u] q IH] x /=; last by case=> _ R; rewrite (IH _ R) maxnA.
by move=> ->; case: q' => [|[k u] q'] /=; rewrite ?maxn0 ?maxnn // maxnA maxnn.
Qed.

Lemma pkinds_cat q q' : pkinds (q ++ q') = pkinds q ++ pkinds q'.
Proof. exact: map_cat. Qed.

Lemma prun_node w x q y : pnode x -> prun w x q y -> pnode y.
Proof. by elim: q x => [|[k u] q IH] x nx /=; [move=> <- | case=> -[_ nu _] /(IH _ nu)]. Qed.

(** *** Slices and reduce-scatters *)
Lemma slice_first w i j m m' c p : factor w m -> factor w m' -> 0 < p ->
  pnode (mul i m (mul j m' c), m * p) -> pnode (c, p) ->
  pstep w (Moves DynSlice) (mul i m (mul j m' c), m * p) (mul i m c, m * p).
Proof.
move=> fm fm' p0 n1 n2; have m0 := factor_gt0 fm.
have n3 : pnode (mul i m c, m * p).
  case/andP: n1 => /forallP a _; case/andP: n2 => _ b; apply/andP; split=> /=.
    by apply/forallP => k; apply: dvdn_trans (a k); rewrite mulC; exact: mul_dvd.
  by rewrite vol_mul -mulnA [N * _]mulnCA dvdn_pmul2l.
split=> //; split=> //; have mp : 0 < m * p by rewrite muln_gt0 m0.
by split; [exact: pnode_node n1 | exact: pnode_node n3 | exists j, m'; rewrite mulC].
Qed.

Lemma push w i m c p q d : factor w m -> 0 < p -> pnode (mul i m c, m * p) -> pseg w (is_move is_slice) (c, p) q (d, p) ->
  exists q', pseg w (is_move is_slice) (mul i m c, m * p) q' (mul i m d, m * p).
Proof.
move=> fm p0; elim: q c => [|[k [u p']] q IH] c n1 [] /=; first by case=> -> _; exists [::].
case=> st R /andP[]; case: k st => // -[] // [n2 n3 [[_ _ /= [j [m' [fm' E]]]] /= ep]] _ A; subst p' c.
have S := slice_first fm fm' p0 n1 n3; have [_ n4 _] := S.
have [q' [R' A']] := IH u n4 (conj R A).
by exists ((Moves DynSlice, (mul i m u, m * p)) :: q'); split=> //; split.
Qed.

Lemma share_factor t m p : prime m -> p %| m * t -> p %| t \/ exists p', p = m * p' /\ p' %| t.
Proof.
move=> pm d; have [/dvdnP[p' e]|nd] := boolP (m %| p); last first.
  by left; rewrite -(Gauss_dvdr (m := p) (n := m)) // coprime_sym prime_coprime.
by right; exists p'; rewrite mulnC in e; split=> //; move: d; rewrite e dvdn_pmul2l // prime_gt0.
Qed.

Lemma slices_reduced c qs d p : 0 < p -> pnode (c, p) -> seg Single is_slice c qs d ->
  exists qa qb u p', [/\ pseg Single (is_move is_slice) (c, p) qa (u, p),
                         pseg Single is_reduce_scatter (u, p) qb (d, p'), pnode (d, p') & 0 < p'].
Proof.
elim: qs c p => [|[k c1] qs IH] c p p0 n0.
  by case=> /= <- _; exists [::], [::], c, p.
case/seg_inv; case: k => // -[nc nc1 [i [m [fm E]]]] _ G.
have S0 := vol_s_gt0; case/andP: (nc1) => a1 /dvdnP[t et].
have dv : p %| m * t.
  case/andP: n0 => _ /=; rewrite E vol_mul [N * _]mulnCA et mulnA.
  by rewrite dvdn_pmul2r.
have ok p' : p' %| t -> pnode (c1, p') by move=> d'; apply/andP; split=> //=; rewrite et dvdn_pmul2r.
case: (share_factor fm dv) => [d'|[p' [ep d']]].
  have [qa [qb [u [p' [[Ra Aa] B n' p0']]]]] := IH c1 p p0 (ok _ d') G.
  exists ((Moves DynSlice, (c1, p)) :: qa), qb, u, p'; split=> //; split=> //=; split=> //.
  by split; [| exact: ok | split=> //; split=> //; exists i, m].
have p0' : 0 < p' by move: p0; rewrite ep; case: (p') => //; rewrite muln0.
have [qa [qb [u [p2 [A [Rb Ab] n2 p20]]]]] := IH c1 p' p0' (ok _ d') G.
have n1 : pnode (mul i m c1, m * p') by rewrite -E -ep.
have [qa' A'] := push fm p0' n1 A.
exists qa', ((ReduceScatter, (u, p')) :: qb), (mul i m u), p2; rewrite -E -ep in A' *; split=> //.
have nu : pnode (u, p') by apply: (prun_node (ok _ d') A.1).
have nm : pnode (mul i m u, p) by apply: prun_node n0 A'.1.
by split=> //; split=> //=; split=> //; exists i, m.
Qed.

(** *** What is left of the summands *)
Lemma all_reduces c p : 0 < p -> pnode (c, p) -> exists q, pseg Single is_all_reduce (c, p) q (c, 1).
Proof.
elim/ltn_ind: p => p IH p0 n0; have [->|p1] := eqVneq p 1; first by exists [::].
have lt1 : 1 < p by rewrite ltn_neqAle eq_sym p1.
have e : p = pdiv p * (p %/ pdiv p) by rewrite mulnC divnK // pdiv_dvd.
have pr := pdiv_prime lt1; set p' := p %/ pdiv p in e.
have p0' : 0 < p' by rewrite divn_gt0 ?pdiv_gt0 // pdiv_leq.
have n1 : pnode (c, p').
  case/andP: n0 => a b; apply/andP; split=> //=; apply: dvdn_trans b => /=.
  by apply: dvdn_mul => //; apply/dvdn_div/pdiv_dvd.
have [|q [R A]] := IH p' _ p0' n1; first by rewrite ltn_Pdiv // prime_gt1.
exists ((AllReduce, (c, p')) :: q); split=> //; split=> //; split=> //.
by exists (pdiv p).
Qed.

(** *** Moves of what is whole *)
Lemma whole_moves (K : kind -> bool) w c qs d : seg w K c qs d -> exists q, pseg w (is_move K) (c, 1) q (d, 1).
Proof.
elim: qs c => [|[k c1] qs IH] c; first by case=> /= <- _; exists [::].
case/seg_inv => st kK /IH[q [R A]]; exists ((Moves k, (c1, 1)) :: q); split=> /=; last by rewrite kK.
split=> //; case: (st) => n1 n2 _; split=> //; exact: node_pnode.
Qed.

(** *** Heights *)
Lemma lower w (K : pkind -> bool) x q y : (forall k (a b : state), K k -> pstep w k a b -> vol b.1 <= vol a.1) ->
  pseg w K x q y -> pheight x q <= vol x.1 /\ vol y.1 <= vol x.1.
Proof.
move=> H; elim: q x => [|[k u] q IH] x [] /=; first by move=> -> _; rewrite maxn0.
case=> st R /andP[kK A]; have [h1 h2] := IH u (conj R A); have le := H _ _ _ kK st.
by rewrite geq_max leqnn (leq_trans h1 le) (leq_trans h2 le).
Qed.

Lemma higher w (K : pkind -> bool) x q y : (forall k (a b : state), K k -> pstep w k a b -> vol a.1 <= vol b.1) ->
  pseg w K x q y -> pheight x q <= vol y.1 /\ vol x.1 <= vol y.1.
Proof.
move=> H; elim: q x => [|[k u] q IH] x [] /=; first by move=> -> _; rewrite maxn0.
case=> st R /andP[kK A]; have [h1 h2] := IH u (conj R A); have le := H _ _ _ kK st.
by rewrite geq_max h1 (leq_trans le h2).
Qed.

Lemma slice_down k x y : is_move is_slice k -> pstep Single k x y -> vol y.1 <= vol x.1.
Proof. by case: k => // -[] // _ [_ _ [st _]]; apply: wstep_vol_slice st. Qed.
Lemma scatter_down k x y : is_reduce_scatter k -> pstep Single k x y -> vol y.1 <= vol x.1.
Proof.
case: k => // _ [_ _ [i [m [fm _ ->]]]]; rewrite vol_mul leq_pmull //; exact: factor_gt0 fm.
Qed.
Lemma all_reduce_down k x y : is_all_reduce k -> pstep Single k x y -> vol y.1 <= vol x.1.
Proof. by case: k => // _ [_ _ [m [_ _ ->]]]. Qed.
Lemma alltoall_level k x y : is_move is_alltoall k -> pstep Single k x y -> vol y.1 <= vol x.1.
Proof. by case: k => // -[] // _ [_ _ [st _]]; rewrite (wstep_vol_middle (k := AllToAll) isT st). Qed.
Lemma gather_up k x y : is_move is_gather k -> pstep Single k x y -> vol x.1 <= vol y.1.
Proof. by case: k => // -[] // _ [_ _ [st _]]; apply: wstep_vol_gather st. Qed.

(** Between a partial and a whole end there is a sequence of single-axis steps in normal form, no higher than the ends. *)
Theorem partial_normal_form c p d : 0 < p -> pnode (c, p) -> node d ->
  exists q, [/\ prun Single (c, p) q (d, 1), pnormal (pkinds q) & pheight (c, p) q <= maxn (vol c) (vol d)].
Proof.
move=> p0 nc nd; have [ws W] := weak_connected Single s_gt0 (pnode_node p0 nc) nd.
have [d1 [d2 [p1 [p2 [p3 [S1 S2 S3 _]]]]]] := normal_form_segments W.
have [qa [qb [u [p' [A B n' p0']]]]] := slices_reduced p0 nc S1.
have [qc C] := all_reduces p0' n'; have [qd D] := whole_moves S2; have [qe E] := whole_moves S3.
exists (qa ++ qb ++ qc ++ qd ++ qe); split.
- exact: prun_cat A.1 (prun_cat B.1 (prun_cat C.1 (prun_cat D.1 E.1))).
- exists (pkinds qa), (pkinds qb), (pkinds qc), (pkinds qd), (pkinds qe); rewrite !pkinds_cat; split=> //.
  + exact: A.2.
  + exact: B.2.
  + exact: C.2.
  + by split; [apply: sub_all D.2; case=> // -[] | exact: E.2].
have [a1 a2] := lower slice_down A; have [b1 b2] := lower scatter_down B; have [c1 c2] := lower all_reduce_down C.
have [e1 e2] := lower alltoall_level D; have [g1 g2] := higher gather_up E.
rewrite (pheight_cat _ A.1) (pheight_cat _ B.1) (pheight_cat _ C.1) (pheight_cat _ D.1).
rewrite /= in a1 a2 b1 b2 c1 c2 e1 e2 g1 g2 *.
move: (vol c) (vol d) (vol u) (vol d1) (vol d2) a1 a2 b1 b2 c1 c2 e1 e2 g1 g2.
move: (pheight _ qa) (pheight _ qb) (pheight _ qc) (pheight _ qd) (pheight _ qe) => *.
by rewrite !geq_max !leq_max; lia.
Qed.
End PartialNormalForm.
